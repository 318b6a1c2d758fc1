-- expect: Instructions
-- __tostring that never returns.
function f(i, o)
  tostring(setmetatable({}, {__tostring = function() while true do end end}))
end
objclass.register(f)
