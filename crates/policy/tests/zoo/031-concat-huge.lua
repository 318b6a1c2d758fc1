-- expect: Memory
-- table.concat of one string a thousand times.
function f(i, o)
  local t, s = {}, string.rep('x', 100000)
  for k = 1, 1000 do t[k] = s end
  return #table.concat(t)
end
objclass.register(f)
