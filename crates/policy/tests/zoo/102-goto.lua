-- expect: Syntax
-- Lua 5.3's goto: a message that says what to do.
function f(i, o)
  goto done
  ::done::
end
objclass.register(f)
