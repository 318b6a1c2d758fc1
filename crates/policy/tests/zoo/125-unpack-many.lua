-- expect: Instructions
-- Thousands of results per call.
function f(i, o)
  local t = table.create(7000, 1)
  while true do local a = table.unpack(t) end
end
objclass.register(f)
