-- expect: Runtime
-- A width that C's printf would take.
function f(i, o)
  return string.format('%999999999d', 1)
end
objclass.register(f)
