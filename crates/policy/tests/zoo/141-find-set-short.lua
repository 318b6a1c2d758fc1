-- expect: Instructions
-- A set of some letters over some text: below what long patterns are charged by.
function f(i, o)
  local s, p = string.rep('a', 60), '[' .. string.rep('b', 60) .. ']'
  while true do s:find(p) end
end
objclass.register(f)
