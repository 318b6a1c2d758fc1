-- expect: Ok 4
-- The chunk reads the object before any method runs: allowed, as in Ceph.
local size = objclass.stat()
function f(i, o) o:append(tostring(size)) end
objclass.register(f)
