-- expect: Runtime
-- Not a number as the result.
function f(i, o)
  return 0/0
end
objclass.register(f)
