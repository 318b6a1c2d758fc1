-- expect: Runtime
-- A map with functions as values.
function f(i, o)
  objclass.map_set_vals({a = print})
end
objclass.register(f)
