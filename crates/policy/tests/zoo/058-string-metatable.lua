-- expect: Runtime
-- The metatable that all strings share.
function f(i, o)
  getmetatable('').__index = {upper = function() return 'owned' end}
end
objclass.register(f)
