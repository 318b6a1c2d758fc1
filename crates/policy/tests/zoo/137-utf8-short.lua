-- expect: Instructions
-- Short texts, so that a bound on long ones does not see them.
function f(i, o)
  local s = string.rep('x', 1000)
  while true do utf8.len(s) end
end
objclass.register(f)
