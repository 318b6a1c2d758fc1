-- expect: Instructions
-- A function without safepoints called for every element.
function f(i, o)
  local t = table.create(100000, 1)
  while true do table.foreachi(t, type) end
end
objclass.register(f)
