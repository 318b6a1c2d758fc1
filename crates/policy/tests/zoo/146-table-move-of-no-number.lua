-- expect: Runtime
-- What is no number is taken for the least there is: two thousand million again.
function f(i, o)
  table.move({}, 0/0, -2, 1)
end
objclass.register(f)
