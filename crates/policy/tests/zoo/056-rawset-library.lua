-- expect: Runtime
-- rawset on a library.
function f(i, o)
  rawset(string, 'format', function() return 'owned' end)
end
objclass.register(f)
