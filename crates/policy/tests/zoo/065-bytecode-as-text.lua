-- expect: Ok false
-- Luau bytecode offered as text does not compile.
function f(i, o)
  o:append(tostring(load(string.char(6, 3, 0, 0, 0, 0)) ~= nil))
end
objclass.register(f)
