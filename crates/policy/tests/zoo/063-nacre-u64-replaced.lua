-- expect: Runtime
-- So are tables within it.
function f(i, o)
  nacre.u64.add = nil
end
objclass.register(f)
