-- expect: Instructions
-- A set of fifty thousand letters, at every step.
function f(i, o)
  return string.rep('a', 100000):find('[' .. string.rep('b', 50000) .. ']*c')
end
objclass.register(f)
