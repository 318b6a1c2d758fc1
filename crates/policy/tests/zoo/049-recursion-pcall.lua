-- expect: Depth
-- Protected calls inside each other; the innermost failure is passed on.
function f(i, o)
  local function g() local ok, e = pcall(g) if not ok then error(e, 0) end end
  g()
end
objclass.register(f)
