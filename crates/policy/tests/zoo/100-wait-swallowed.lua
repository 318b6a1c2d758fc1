-- expect: Wait
-- The host has not got the data: no pcall hides that.
function f(i, o)
  pcall(nacre.absent)
  local ok = pcall(objclass.getxattr, 'absent')
  o:append('swallowed')
  return 0
end
objclass.register(f)
