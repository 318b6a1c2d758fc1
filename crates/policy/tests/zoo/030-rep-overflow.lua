-- expect: Runtime
-- A length that does not fit: refused by arithmetic before any allocation.
function f(i, o)
  return #string.rep('xxxxxxxx', 2147483647)
end
objclass.register(f)
