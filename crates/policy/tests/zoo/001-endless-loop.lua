-- expect: Instructions
-- The script that Ceph's Mantle review feared.
function f(i, o)
  while true do end
end
objclass.register(f)
