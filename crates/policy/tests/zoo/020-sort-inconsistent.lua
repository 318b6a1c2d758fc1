-- expect: Runtime
-- A comparator that lies: an error, not a crash.
function f(i, o)
  local t = {}
  for k = 1, 100 do t[k] = k % 7 end
  table.sort(t, function() return true end)
end
objclass.register(f)
