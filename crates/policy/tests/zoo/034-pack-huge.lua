-- expect: Memory
-- string.pack with a fixed size of a gigabyte.
function f(i, o)
  return #string.pack('c1000000000', 'x')
end
objclass.register(f)
