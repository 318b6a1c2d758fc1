-- expect: Memory
-- Half a gigabyte in one buffer.
function f(i, o)
  buffer.create(500000000)
end
objclass.register(f)
