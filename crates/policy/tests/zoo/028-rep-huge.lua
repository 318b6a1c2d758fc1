-- expect: Memory
-- One allocation far beyond the budget.
function f(i, o)
  return #string.rep('x', 1000000000)
end
objclass.register(f)
