-- expect: Number
-- 2^53 + 1, which a double rounds to 2^53.
function f(i, o)
  objclass.truncate(9007199254740993)
end
objclass.register(f)
