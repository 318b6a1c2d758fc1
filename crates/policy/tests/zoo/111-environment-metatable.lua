-- expect: Ok nil
-- A metatable on the environment is the call's own.
setmetatable(_G, {__index = function(t, k) return k == 'ghost' and 'boo' or nil end})
function f(i, o) o:append(type(rawget(_G, 'ghost'))) end
objclass.register(f)
