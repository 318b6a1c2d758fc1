-- expect: Runtime
-- ... with rawset.
function f(i, o)
  rawset(getmetatable(''), '__index', {})
end
objclass.register(f)
