-- expect: Instructions
-- ... and one in each.
function f(i, o)
  while true do string.format('%.99f', 1e308) end
end
objclass.register(f)
