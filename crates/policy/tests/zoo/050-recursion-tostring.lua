-- expect: Depth
-- tostring of itself.
function f(i, o)
  local t = {}
  setmetatable(t, {__tostring = function(s) return tostring(s) end})
  return tostring(t)
end
objclass.register(f)
