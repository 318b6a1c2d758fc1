-- expect: Instructions
-- Another kind of loop.
function f(i, o)
  repeat local x = 1 until x == 2
end
objclass.register(f)
