-- expect: Instructions
-- __len that never returns.
function f(i, o)
  local t = setmetatable({}, {__len = function() while true do end end})
  return #t
end
objclass.register(f)
