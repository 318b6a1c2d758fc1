-- expect: Instructions
-- __eq that never returns.
function f(i, o)
  local m = {__eq = function() while true do end end}
  return setmetatable({}, m) == setmetatable({}, m)
end
objclass.register(f)
