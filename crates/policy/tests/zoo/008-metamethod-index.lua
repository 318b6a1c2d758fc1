-- expect: Instructions
-- __index that never returns.
function f(i, o)
  local t = setmetatable({}, {__index = function() while true do end end})
  return t.x
end
objclass.register(f)
