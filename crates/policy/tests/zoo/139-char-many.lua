-- expect: Instructions
-- Thousands of arguments.
function f(i, o)
  local t = table.create(7000, 65)
  while true do string.char(table.unpack(t)) utf8.char(table.unpack(t)) end
end
objclass.register(f)
