-- expect: Instructions
-- Garbage of half a terabyte if nobody counted: instructions end it first.
function f(i, o)
  local s = ''
  for k = 1, 1e9 do s = tostring(k) end
end
objclass.register(f)
