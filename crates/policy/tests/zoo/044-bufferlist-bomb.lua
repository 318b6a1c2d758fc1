-- expect: Memory
-- Bufferlists live outside Lua's heap and count all the same.
function f(i, o)
  local t, b = {}, bufferlist.new(string.rep('x', 1000000))
  for k = 1, 1000 do t[k] = b .. 'x' end
end
objclass.register(f)
