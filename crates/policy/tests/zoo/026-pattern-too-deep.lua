-- expect: Runtime
-- A pattern nested beyond the matcher's depth.
function f(i, o)
  return (string.rep('x', 1000)):find(string.rep('(x', 30) .. string.rep(')', 30) .. string.rep('[x]?', 500))
end
objclass.register(f)
