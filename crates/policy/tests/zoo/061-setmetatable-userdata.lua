-- expect: Runtime
-- A metatable for a bufferlist.
function f(i, o)
  setmetatable(i, {})
end
objclass.register(f)
