-- Single server: everything lives on one rank; the others give it what they have (SC 2015: "a single node metadata service").
-- The first rank that is up, so that a takeover needs no administrator. Form: single script, placing units by name.

local home = math.huge
for rank in pairs(mds) do
  home = math.min(home, rank)
end
for _, unit in ipairs(nacre.units) do
  nacre.place(unit, home)
end
