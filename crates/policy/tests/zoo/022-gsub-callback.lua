-- expect: Instructions
-- A callback that never returns.
function f(i, o)
  ('x'):gsub('x', function() while true do end end)
end
objclass.register(f)
