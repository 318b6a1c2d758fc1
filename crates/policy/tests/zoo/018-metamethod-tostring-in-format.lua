-- expect: Instructions
-- ... reached through string.format.
function f(i, o)
  return string.format('%s', setmetatable({}, {__tostring = function() while true do end end}))
end
objclass.register(f)
