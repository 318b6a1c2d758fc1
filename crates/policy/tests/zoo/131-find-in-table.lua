-- expect: Instructions
-- Looking for what is not there.
function f(i, o)
  local t = table.create(100000, 1)
  while true do table.find(t, 2) end
end
objclass.register(f)
