-- expect: Runtime
-- A message of megabytes is cut.
function f(i, o)
  error(string.rep('x', 4000000))
end
objclass.register(f)
