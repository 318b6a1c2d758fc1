-- expect: Instructions
-- Thousands of results of a text.
function f(i, o)
  local s = string.rep('x', 7000)
  while true do utf8.codepoint(s, 1, -1) s:byte(1, -1) end
end
objclass.register(f)
