-- expect: Runtime
-- An error object whose __tostring never returns is not asked.
function f(i, o)
  error(setmetatable({}, {__tostring = function() while true do end end}))
end
objclass.register(f)
