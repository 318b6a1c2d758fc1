-- expect: Ok table function userdatabufferlist table
-- No address shows in any text.
function f(i, o)
  o:append(tostring({})..' '..tostring(print)..' '..type(i)..tostring(i)..' '..string.format('%s', {}))
end
objclass.register(f)
