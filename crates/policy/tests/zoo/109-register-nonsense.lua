-- expect: Runtime
-- register takes functions.
objclass.register(42)
