-- expect: Runtime
-- A chunk whose name says that it failed at line 0.
function f(i, o)
  error((select(2, load("x x", "a:0: b"))))
end
objclass.register(f)
