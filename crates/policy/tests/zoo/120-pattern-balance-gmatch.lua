-- expect: Instructions
-- ... and as an iterator.
function f(i, o)
  for w in string.rep('(', 200000):gmatch('%b()') do end
end
objclass.register(f)
