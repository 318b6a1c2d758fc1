-- expect: Runtime
-- A source text that is too long is refused before it is compiled.
function f(i, o)
  local f, why = load(string.rep(' ', 300000))
  error(why)
end
objclass.register(f)
