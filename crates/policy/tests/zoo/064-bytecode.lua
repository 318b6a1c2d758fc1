-- expect: Ok nil only source text can be loaded
-- load takes text only.
function f(i, o)
  local f, why = load('\27Lua', 'x', 'b')
  o:append(tostring(f)..' '..tostring(why))
end
objclass.register(f)
