-- expect: Missing
-- A method that nobody registered is not there, whatever the globals say.
f = setmetatable({}, {__call = function() return 0 end})
