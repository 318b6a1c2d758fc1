-- expect: Output
-- One line.
function f(i, o)
  objclass.log(0, string.rep('x', 3000000))
end
objclass.register(f)
