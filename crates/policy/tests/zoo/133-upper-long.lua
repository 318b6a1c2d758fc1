-- expect: Instructions
-- Every byte looked at, and a new string made of it.
function f(i, o)
  local s = string.rep('a', 60000)
  while true do s:upper() s:lower() s:reverse() end
end
objclass.register(f)
