-- expect: Memory
-- Running out of memory cannot be caught either: whether it happens depends on the heap, and no result may.
function f(i, o)
  local ok = pcall(string.rep, 'x', 1000000000)
  o:append(tostring(ok))
end
objclass.register(f)
