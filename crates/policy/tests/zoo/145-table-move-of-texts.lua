-- expect: Instructions
-- Luau takes a text for a number; two thousand million nils moved in one call.
function f(i, o)
  table.move({}, "1", "2000000000", 100000000)
end
objclass.register(f)
