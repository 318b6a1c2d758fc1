-- expect: Runtime
-- A table that acts like a bufferlist.
function f(i, o)
  objclass.write_full(setmetatable({}, {__len = function() return 4 end, __index = {str = function() return 'x' end}}))
end
objclass.register(f)
