-- expect: Runtime
-- What a script sees of a bufferlist's metatable is a read-only list of names.
function f(i, o)
  getmetatable(i).str = function() return 'owned' end
end
objclass.register(f)
