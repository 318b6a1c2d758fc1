-- expect: Memory
-- A replacement that makes a hundred megabytes.
function f(i, o)
  return #(string.rep('x', 10000)):gsub('x', string.rep('y', 10000))
end
objclass.register(f)
