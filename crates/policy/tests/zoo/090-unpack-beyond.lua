-- expect: Number
-- string.unpack of 8 bytes that a double rounds.
function f(i, o)
  return string.unpack('<i8', '\1\0\0\0\0\0\32\0')
end
objclass.register(f)
