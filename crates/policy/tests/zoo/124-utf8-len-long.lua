-- expect: Instructions
-- Counting characters of megabytes, again and again.
function f(i, o)
  local s = string.rep('x', 8000000)
  while true do utf8.len(s) end
end
objclass.register(f)
