-- expect: Errno(27)
-- 2^53 - 1 is carried exactly; the host says what it thinks of it.
function f(i, o)
  objclass.truncate(9007199254740991)
end
objclass.register(f)
