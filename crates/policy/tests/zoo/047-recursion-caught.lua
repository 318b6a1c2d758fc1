-- expect: Ok caught
-- Too deep is an error like any other, and the call goes on.
function f(i, o)
  local function g() return 1 + g() end
  local ok = pcall(g)
  o:append(ok and 'no' or 'caught')
end
objclass.register(f)
