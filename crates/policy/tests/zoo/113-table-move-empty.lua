-- expect: Instructions
-- Two thousand million nils moved in one call.
function f(i, o)
  table.move({}, 1, 2000000000, 1, {1})
end
objclass.register(f)
