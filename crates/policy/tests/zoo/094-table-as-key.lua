-- expect: Runtime
-- A table as the name of an attribute.
function f(i, o)
  objclass.getxattr({})
end
objclass.register(f)
