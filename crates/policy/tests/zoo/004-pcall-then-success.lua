-- expect: Instructions
-- The budget's end is caught, and the method returns as if nothing were.
function f(i, o)
  pcall(function() while true do end end)
  o:append('fine')
  return 0
end
objclass.register(f)
