-- expect: Instructions
-- Sorting a short table for ever.
function f(i, o)
  while true do
    local t = {}
    for k = 1, 60 do t[k] = k * 37 % 61 end
    for k = 1, 100 do table.sort(t, rawequal) end
  end
end
objclass.register(f)
