-- expect: Memory
-- A list appended to itself.
function f(i, o)
  local b = bufferlist.new('x')
  while true do b:append(b) end
end
objclass.register(f)
