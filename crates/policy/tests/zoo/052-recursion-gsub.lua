-- expect: Depth
-- A callback that substitutes.
function f(i, o)
  local function c() return ('x'):gsub('x', c) end
  c()
end
objclass.register(f)
