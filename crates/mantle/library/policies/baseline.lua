-- Baseline: what CephFS balances by itself, for comparison: loads over the mean go to loads below it, the largest to the largest (Malacology §6.2.1).
-- Not to be used for itself: it plays ping-pong when load drifts (`nacre policy test` shows it on the example `drift` with two ranks).
-- Its three modes differ only in what they call load. Form: hooks. Every rank works out the same pairing and does its own part.

local mode = "hybrid"     -- "hybrid", "workload" or "cpu"
local min_rebalance = 0.1 -- a load above the mean by this part is too much

function mdsload(m)
  if mode == "cpu" then
    return m.cpu
  elseif mode == "workload" then
    return m.req + 10 * m.q
  end
  return 0.8 * m.auth + 0.2 * m.all + m.req + 10 * m.q
end

local mean

function when()
  local count = 0
  for _ in pairs(mds) do
    count = count + 1
  end
  mean = total / count
  return mds[whoami].load > mean * (1 + min_rebalance)
end

function where()
  local givers, takers = {}, {}
  for rank, entry in pairs(mds) do
    if entry.load > mean * (1 + min_rebalance) then
      givers[#givers + 1] = {rank = rank, amount = entry.load - mean}
    elseif entry.load < mean then
      takers[#takers + 1] = {rank = rank, amount = mean - entry.load}
    end
  end
  local function larger(a, b)
    return a.amount > b.amount or (a.amount == b.amount and a.rank < b.rank)
  end
  table.sort(givers, larger)
  table.sort(takers, larger)
  local at = 1
  for _, giver in ipairs(givers) do
    while giver.amount > 0 and takers[at] ~= nil do
      local amount = math.min(giver.amount, takers[at].amount)
      if giver.rank == whoami then
        targets[takers[at].rank] = amount
      end
      giver.amount = giver.amount - amount
      takers[at].amount = takers[at].amount - amount
      if takers[at].amount <= 0 then
        at = at + 1
      end
    end
  end
end

howmuch = {"big"}
