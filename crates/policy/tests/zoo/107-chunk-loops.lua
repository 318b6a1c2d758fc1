-- expect: Instructions
-- The chunk itself never ends.
while true do end
