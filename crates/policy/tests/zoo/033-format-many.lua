-- expect: Memory
-- Many long arguments.
function f(i, o)
  local s = string.rep('x', 5000000)
  return #string.format('%s%s%s%s', s, s, s, s)
end
objclass.register(f)
