-- expect: Number
-- string.pack of half an integer.
function f(i, o)
  return string.pack('<i4', 0.5)
end
objclass.register(f)
