-- expect: Instructions
-- Compiling costs.
function f(i, o)
  while true do load('return ' .. string.rep('(', 100) .. '1' .. string.rep(')', 100)) end
end
objclass.register(f)
