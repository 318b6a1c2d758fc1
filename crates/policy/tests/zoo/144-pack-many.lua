-- expect: Instructions
-- Texts of ten thousand bytes packed.
function f(i, o)
  while true do string.pack('c10000', 'x') end
end
objclass.register(f)
