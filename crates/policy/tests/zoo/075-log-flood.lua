-- expect: Output
-- A log line per loop, for ever.
function f(i, o)
  while true do print('all work and no play') end
end
objclass.register(f)
