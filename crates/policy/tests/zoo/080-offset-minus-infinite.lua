-- expect: Number
-- Minus infinity.
function f(i, o)
  objclass.truncate(-math.huge)
end
objclass.register(f)
