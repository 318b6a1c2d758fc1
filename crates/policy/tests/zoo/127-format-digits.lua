-- expect: Instructions
-- Two hundred numbers of three hundred digits in one call.
function f(i, o)
  local t, p = table.create(200, 1e308), string.rep('%.99f', 200)
  while true do string.format(p, table.unpack(t)) end
end
objclass.register(f)
