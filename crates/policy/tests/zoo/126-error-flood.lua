-- expect: Instructions
-- Errors raised and caught, for ever: unwinding takes longer than calling.
function f(i, o)
  while true do pcall(error, nil) end
end
objclass.register(f)
