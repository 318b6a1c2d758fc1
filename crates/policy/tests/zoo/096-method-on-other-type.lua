-- expect: Runtime
-- A bufferlist's method on a string.
function f(i, o)
  i.str('not a bufferlist')
end
objclass.register(f)
