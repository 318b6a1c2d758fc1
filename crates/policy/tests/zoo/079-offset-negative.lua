-- expect: Number
-- A negative offset.
function f(i, o)
  objclass.write(-1, 1, i)
end
objclass.register(f)
