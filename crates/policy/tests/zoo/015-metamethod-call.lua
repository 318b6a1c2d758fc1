-- expect: Instructions
-- __call that calls itself in a loop.
function f(i, o)
  local t = setmetatable({}, {__call = function() while true do end end})
  t()
end
objclass.register(f)
