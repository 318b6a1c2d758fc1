-- expect: Ok nil nil nil nil
-- Ways to other environments are not there.
function f(i, o)
  o:append(type(getfenv)..' '..type(setfenv)..' '..type(debug)..' '..type(require))
end
objclass.register(f)
