-- expect: Instructions
-- A comparator that never returns.
function f(i, o)
  table.sort({3, 2, 1}, function() while true do end end)
end
objclass.register(f)
