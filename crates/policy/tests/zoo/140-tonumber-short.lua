-- expect: Instructions
-- A thousand digits: read exactly, which takes arithmetic on long numbers.
function f(i, o)
  local s = string.rep('9', 1000)
  while true do tonumber(s) end
end
objclass.register(f)
