-- expect: Ok 
-- Operators that each read a long string, and no step between them: elsewhere, and not for long.
local t = {}
function f(i, o)
  local s = ('0'):rep(900 * 1024)
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
  t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s t[1]=-s
end
objclass.register(f)
