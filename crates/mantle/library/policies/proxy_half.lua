-- Proxy mode, half units: the first rank keeps taking all requests and hands half of the work to the next one (Malacology §6.2.1, §6.2.2,
-- "Proxy Mode (Half)"). For sequencers: receiving requests and finding the tail are both too much for one server.
-- Form: single script.

nacre.mode("proxy")
-- Once: what the next rank has then is half, and measured loads are never quite even.
if whoami == 0 and mds[1] ~= nil and mds[1].load < mds[0].load / 4 then
  targets[whoami + 1] = mds[whoami]["load"] / 2
end
