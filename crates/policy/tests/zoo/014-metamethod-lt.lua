-- expect: Instructions
-- __lt that never returns.
function f(i, o)
  local m = {__lt = function() while true do end end}
  return setmetatable({}, m) < setmetatable({}, m)
end
objclass.register(f)
