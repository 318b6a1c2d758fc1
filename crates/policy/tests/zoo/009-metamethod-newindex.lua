-- expect: Instructions
-- __newindex that never returns.
function f(i, o)
  local t = setmetatable({}, {__newindex = function() while true do end end})
  t.x = 1
end
objclass.register(f)
