-- expect: Instructions
-- The error of the budget is caught and the loop goes on.
function f(i, o)
  while true do pcall(function() while true do end end) end
end
objclass.register(f)
