-- expect: Instructions
-- A string made byte by byte, for ever.
function f(i, o)
  while true do string.rep('x', 60000) end
end
objclass.register(f)
