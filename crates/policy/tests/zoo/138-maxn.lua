-- expect: Instructions
-- The largest of a hundred thousand keys.
function f(i, o)
  local t = {}
  for k = 1, 50000 do t[k + 0.5] = 1 end
  while true do table.maxn(t) end
end
objclass.register(f)
