-- expect: Runtime
-- A table as the result.
function f(i, o)
  return {}
end
objclass.register(f)
