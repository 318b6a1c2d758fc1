-- expect: Instructions
-- Millions of small calls of the interface.
function f(i, o)
  while true do objclass.stat() end
end
objclass.register(f)
