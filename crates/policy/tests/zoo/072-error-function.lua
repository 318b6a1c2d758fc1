-- expect: Runtime
-- A function as the error.
function f(i, o)
  error(print)
end
objclass.register(f)
