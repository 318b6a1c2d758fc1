-- expect: Memory
-- One table without end.
function f(i, o)
  local t = {}
  for k = 1, 1e9 do t[k] = k end
end
objclass.register(f)
