-- expect: Number
-- Infinity as a length.
function f(i, o)
  objclass.read(0, math.huge)
end
objclass.register(f)
