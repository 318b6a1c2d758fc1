-- Two phases: grows without limit until it once has had `trigger` keys, then keeps `limit` (policies paper, §5; PAR-10).
-- Absorbs the flash crowd at a run's beginning, then gives the memory back. Form: hooks for a cache.

local trigger = 100000
local limit = 10000

function when()
  if cache.keys >= trigger then
    nacre.state = "second phase"
  end
  return nacre.state == "second phase"
end

function howmuch()
  return limit
end
