-- expect: Instructions
-- Filling eight megabytes again and again.
function f(i, o)
  local b = buffer.create(8000000)
  while true do buffer.fill(b, 0, 1) end
end
objclass.register(f)
