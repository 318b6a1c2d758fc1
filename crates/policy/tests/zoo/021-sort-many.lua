-- expect: Instructions
-- Sorting a large table for ever: its time is charged by size.
function f(i, o)
  local t = {}
  for k = 1, 50000 do t[k] = k end
  while true do table.sort(t) end
end
objclass.register(f)
