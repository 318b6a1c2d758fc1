-- expect: Number
-- Not a number as an offset.
function f(i, o)
  objclass.read(0/0, 1)
end
objclass.register(f)
