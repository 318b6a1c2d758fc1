-- expect: Runtime
-- _G is the call's own copy; libraries are read-only through it.
function f(i, o)
  _G.string.format = nil
end
objclass.register(f)
