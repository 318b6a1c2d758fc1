-- expect: Depth
-- A comparator that sorts.
function f(i, o)
  local function c() table.sort({2, 1}, c) return false end
  c()
end
objclass.register(f)
