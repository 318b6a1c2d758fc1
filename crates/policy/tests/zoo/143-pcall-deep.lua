-- expect: Instructions
-- Protected calls inside each other, and every one is unwound by itself.
function f(i, o)
  local function g(n) if n == 0 then while true do end end pcall(g, n - 1) end
  while true do g(4000) end
end
objclass.register(f)
