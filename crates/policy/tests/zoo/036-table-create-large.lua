-- expect: Memory
-- A table with room for fifty million.
function f(i, o)
  table.create(50000000, 0)
end
objclass.register(f)
