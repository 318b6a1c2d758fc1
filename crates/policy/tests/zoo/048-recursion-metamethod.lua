-- expect: Depth
-- Through C: __index as a function that indexes.
function f(i, o)
  local t = {}
  setmetatable(t, {__index = function(t, k) return t[k .. 'x'] end})
  return t.a
end
objclass.register(f)
