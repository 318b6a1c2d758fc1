-- expect: Memory
-- The classic.
function f(i, o)
  local s = 'x'
  while true do s = s .. s end
end
objclass.register(f)
