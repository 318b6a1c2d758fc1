-- expect: Runtime
-- The interface is read-only.
function f(i, o)
  objclass.read = function() return 'owned' end
end
objclass.register(f)
