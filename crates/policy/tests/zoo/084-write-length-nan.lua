-- expect: Number
-- Not a number as the length to write.
function f(i, o)
  objclass.write(0, 0/0, i)
end
objclass.register(f)
