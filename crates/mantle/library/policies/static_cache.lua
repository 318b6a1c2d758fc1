-- Static cache: keeps a fixed number of keys, always; the least recently used go (policies paper, §4, "n key limit"; PAR-09).
-- Form: hooks for a cache.

local limit = 100000

function when()
  return cache.keys > limit
end

function howmuch()
  return limit
end
