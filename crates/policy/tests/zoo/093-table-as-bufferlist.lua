-- expect: Runtime
-- A table where bytes belong.
function f(i, o)
  objclass.write_full({1, 2, 3})
end
objclass.register(f)
