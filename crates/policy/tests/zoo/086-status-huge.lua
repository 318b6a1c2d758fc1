-- expect: Runtime
-- A result beyond 32 bits.
function f(i, o)
  return 2^40
end
objclass.register(f)
