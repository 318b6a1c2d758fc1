-- expect: Memory
-- Tables without end.
function f(i, o)
  local t = {}
  while true do t = {t, t, t, t, t, t, t, t} end
end
objclass.register(f)
