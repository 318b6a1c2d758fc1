-- Greedy spill: a rank with load gives half of it to its right neighbour, if that one has nothing (Sevilla et al., SC 2015, "Greedy Spill").
-- Spreads a growing load quickly and evenly over 2, 4, 8 ranks; leaves loads that are already everywhere alone.
-- Balances: whatever `all` measures. Form: hooks.

local idle = 0.01 -- a load below this is none

function when()
  local neighbour = mds[whoami + 1]
  return neighbour ~= nil and mds[whoami].load > idle and neighbour.load < idle
end

function where()
  targets[whoami + 1] = mds[whoami].load / 2
end
