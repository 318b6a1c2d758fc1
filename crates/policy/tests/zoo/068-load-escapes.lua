-- expect: Ok nil
-- Loaded code sees the call's environment, not another one.
function f(i, o)
  load('leak = 1')()
  o:append(type(rawget(getmetatable('').__index, 'leak')))
end
objclass.register(f)
