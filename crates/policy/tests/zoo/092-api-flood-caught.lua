-- expect: Instructions
-- ... that all fail, and are caught.
function f(i, o)
  while true do pcall(objclass.map_get_val, 'no') end
end
objclass.register(f)
