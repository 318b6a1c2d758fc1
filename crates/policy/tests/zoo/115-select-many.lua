-- expect: Runtime
-- More results than a stack holds.
function f(i, o)
  return select('#', table.unpack({}, 1, 10000000))
end
objclass.register(f)
