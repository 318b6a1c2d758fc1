-- expect: Instructions
-- gmatch over nothing, for ever.
function f(i, o)
  while true do for w in (''):gmatch('') do end end
end
objclass.register(f)
