-- expect: Runtime
-- A handler that fails, and fails again.
function f(i, o)
  xpcall(function() error('a') end, function(e) error(e) end)
  error('after')
end
objclass.register(f)
