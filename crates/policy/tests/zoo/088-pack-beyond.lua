-- expect: Number
-- string.pack of an integer that is not what it seems.
function f(i, o)
  return string.pack('<i8', 2^53 + 2)
end
objclass.register(f)
