-- expect: Instructions
-- A set of some thousand letters, compared to the end at each of some thousand places.
function f(i, o)
  local n = 12000
  return string.rep("x", n):find("[" .. string.rep("a", n) .. "x]*$")
end
objclass.register(f)
