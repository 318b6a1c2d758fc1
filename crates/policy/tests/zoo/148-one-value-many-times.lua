-- expect: Memory
-- One string as the value of thirty thousand keys: 12 GB, copied before they are counted.
function f(i, o)
  objclass.map_set_vals(table.create(30000, string.rep("x", 400000)))
end
objclass.register(f)
