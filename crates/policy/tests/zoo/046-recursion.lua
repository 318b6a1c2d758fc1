-- expect: Depth
-- A function that calls itself.
function f(i, o)
  local function g() return 1 + g() end
  return g()
end
objclass.register(f)
