-- expect: Instructions
-- Thousands of strings made by one call.
function f(i, o)
  local s = string.rep('a,', 4000)
  while true do string.split(s, ',') end
end
objclass.register(f)
