-- expect: Instructions
-- Quadratic matching over a megabyte.
function f(i, o)
  local s = string.rep('a', 1000000)
  return s:find('.-.-.-b')
end
objclass.register(f)
