-- expect: Runtime
-- So is what is too large.
function f(i, o)
  table.move({}, 1e300, -2, 1)
end
objclass.register(f)
