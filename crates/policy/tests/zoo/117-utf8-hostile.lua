-- expect: Runtime
-- Broken UTF-8.
function f(i, o)
  for _, c in utf8.codes('\255\254') do end
end
objclass.register(f)
