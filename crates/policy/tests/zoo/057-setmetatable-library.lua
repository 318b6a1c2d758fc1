-- expect: Runtime
-- A metatable on a library.
function f(i, o)
  setmetatable(math, {__index = function() return 1 end})
end
objclass.register(f)
