-- expect: Instructions
-- Exponential matching.
function f(i, o)
  local s = string.rep('a', 200)
  return s:find(string.rep('a*', 30) .. 'b')
end
objclass.register(f)
