-- expect: Instructions
-- memmem at its worst: two megabytes in four.
function f(i, o)
  local s, p = string.rep('a', 4000000), string.rep('a', 2000000) .. 'b'
  return s:find(p, 1, true)
end
objclass.register(f)
