-- expect: Instructions
-- Comparing what was captured, at every place.
function f(i, o)
  return string.rep('a', 100000):find('(.*)%1b')
end
objclass.register(f)
