-- expect: Runtime
-- error without a value.
function f(i, o)
  error(nil)
end
objclass.register(f)
