-- expect: Output
-- More output than a reply may carry.
function f(i, o)
  o:append(string.rep('x', 2000000))
end
objclass.register(f)
