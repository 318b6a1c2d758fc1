-- expect: Runtime
-- A table with room for a hundred million: more than Luau's tables can have.
function f(i, o)
  table.create(100000000, 0)
end
objclass.register(f)
