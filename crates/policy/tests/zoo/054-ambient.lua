-- expect: Ok nilnilnilnilnilnilnilnil
-- Nor are ways to the machine.
function f(i, o)
  o:append(type(os)..type(io)..type(package)..type(dofile)..type(loadfile)..type(collectgarbage)..type(newproxy)..type(coroutine))
end
objclass.register(f)
