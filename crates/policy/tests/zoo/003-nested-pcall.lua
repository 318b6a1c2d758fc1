-- expect: Instructions
-- Fifty protected calls around a loop, each of which tries again.
function f(i, o)
  local function g(n) while true do if n == 0 then while true do end end pcall(g, n - 1) end end
  g(50)
end
objclass.register(f)
