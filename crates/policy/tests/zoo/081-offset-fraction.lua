-- expect: Number
-- Half a byte.
function f(i, o)
  objclass.read(0.5, 1)
end
objclass.register(f)
