-- expect: Wait
-- ... nor a loop.
function f(i, o)
  while true do pcall(objclass.getxattr, 'absent') end
end
objclass.register(f)
