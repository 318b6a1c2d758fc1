-- Adaptable: the rank with the largest load gives to all that are below the mean, as much as each lacks, when it has more than the others can be
-- blamed for (SC 2015, "Adaptable Balancer"). The general-purpose policy of this library.
-- Form: hooks. Heavy units first: few moves, and what is light now may be tomorrow's hot spot, soon to be moved again.

local margin = 0.25 -- only above the mean by this part

function when()
  local count, heaviest = 0, 0
  for rank, entry in pairs(mds) do
    count = count + 1
    heaviest = math.max(heaviest, entry.load)
  end
  local mine = mds[whoami].load
  return mine > 0 and mine >= heaviest and mine > (1 + margin) * total / count
end

function where()
  local count, lacking = 0, 0
  for _ in pairs(mds) do
    count = count + 1
  end
  local mean = total / count
  for rank, entry in pairs(mds) do
    lacking = lacking + math.max(0, mean - entry.load)
  end
  -- Others may have more than the mean too: what we can give is shared out by need.
  local give = math.min(mds[whoami].load - mean, lacking)
  for rank, entry in pairs(mds) do
    if entry.load < mean then
      targets[rank] = give * (mean - entry.load) / lacking
    end
  end
end

howmuch = {"big"}
