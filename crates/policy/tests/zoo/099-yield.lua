-- expect: Runtime
-- There are no coroutines to leave a call with.
function f(i, o)
  coroutine.yield()
end
objclass.register(f)
