-- expect: Instructions
-- __add that never returns.
function f(i, o)
  local t = setmetatable({}, {__add = function() while true do end end})
  return t + 1
end
objclass.register(f)
