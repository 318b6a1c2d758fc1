-- expect: Instructions
-- Inserting at the front of a large table.
function f(i, o)
  local t = table.create(300000, 0)
  while true do table.insert(t, 1, 0) table.remove(t, 1) end
end
objclass.register(f)
