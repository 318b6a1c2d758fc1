-- expect: Instructions
-- __iter that gives an endless iterator.
function f(i, o)
  local t = setmetatable({}, {__iter = function() return function() return 1 end end})
  for _ in t do end
end
objclass.register(f)
