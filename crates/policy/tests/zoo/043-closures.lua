-- expect: Memory
-- Closures without end.
function f(i, o)
  local t = {}
  for k = 1, 1e9 do t[k] = function() return k end end
end
objclass.register(f)
