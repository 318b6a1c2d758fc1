-- expect: Instructions
-- Megabytes of digits, again and again.
function f(i, o)
  local s = string.rep('9', 1000000)
  while true do tonumber(s) end
end
objclass.register(f)
