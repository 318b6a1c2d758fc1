-- Fill and spill: use one rank until its processor has been too busy for a while, then give a quarter to the right neighbour (SC 2015, "Fill and Spill").
-- Keeps locality as long as one rank can carry the load: the opposite of spreading early.
-- Form: hooks, with a countdown in the saved state: no move within `patience` ticks of the last one, none before `patience` busy ticks.

local busy = 48     -- percent of processor use at which a rank is full
local patience = 2  -- ticks

function mdsload(metrics)
  return metrics.cpu
end

function when()
  if mds[whoami + 1] == nil or mds[whoami].load <= busy then
    WRstate(patience)
    return false
  end
  local wait = nacre.state == nil and patience or RDstate()
  if wait > 0 then
    WRstate(wait - 1)
    return false
  end
  WRstate(patience)
  return true
end

function where()
  targets[whoami + 1] = mds[whoami].load / 4
end
