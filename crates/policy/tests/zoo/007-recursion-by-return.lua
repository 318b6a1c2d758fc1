-- expect: Instructions
-- Luau has no tail calls: two functions that call each other in a loop.
function f(i, o)
  local g
  local function h() return 1 end
  while h() do g = h() end
end
objclass.register(f)
