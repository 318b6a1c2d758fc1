-- Proxy mode, full units: the first rank takes all requests and does nothing else; the others share the work (Malacology §6.2.2, "Proxy Mode (Full)").
-- Form: single script.

nacre.mode("proxy")
local work, workers = 0, 0
for rank, entry in pairs(mds) do
  -- What a rank is the authority of; `all` would count the handing on as well.
  entry.load = entry.auth
  work = work + entry.load
  workers = workers + (rank > 0 and 1 or 0)
end
if whoami == 0 and workers > 0 then
  local left = mds[0].load
  for rank, entry in pairs(mds) do
    if rank > 0 then
      local share = math.min(left, math.max(0, work / workers - entry.load))
      targets[rank] = share
      left = left - share
    end
  end
end
