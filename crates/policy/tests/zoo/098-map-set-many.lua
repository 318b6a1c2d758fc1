-- expect: Instructions
-- Hundreds of thousands of pairs, again and again.
function f(i, o)
  local t = {}
  for k = 1, 20000 do t['k' .. k] = i end
  while true do objclass.map_set_vals(t) end
end
objclass.register(f)
