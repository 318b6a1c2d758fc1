-- expect: Instructions
-- __concat that never returns.
function f(i, o)
  local t = setmetatable({}, {__concat = function() while true do end end})
  return t .. 'x'
end
objclass.register(f)
