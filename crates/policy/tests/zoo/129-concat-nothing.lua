-- expect: Instructions
-- A thousand empty strings joined.
function f(i, o)
  local t = table.create(1000, '')
  while true do table.concat(t) end
end
objclass.register(f)
