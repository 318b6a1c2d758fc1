-- expect: Memory
-- Large strings made and dropped: few safepoints, much copying.
function f(i, o)
  local s = string.rep('x', 1000000)
  while true do local t = s .. 'y' end
end
objclass.register(f)
