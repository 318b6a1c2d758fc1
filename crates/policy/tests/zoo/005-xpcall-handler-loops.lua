-- expect: Instructions
-- The error handler itself never ends.
function f(i, o)
  xpcall(function() error('x') end, function() while true do end end)
end
objclass.register(f)
