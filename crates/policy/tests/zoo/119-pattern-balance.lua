-- expect: Instructions
-- %b scans the subject from every place.
function f(i, o)
  return string.rep('(', 200000):find('%b()')
end
objclass.register(f)
