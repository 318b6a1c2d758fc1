-- Pin: units whose names begin with a prefix live on a rank; the longest prefix counts. Others stay where they are.
-- Write your own table. A pin to a rank that is down waits. (A service's own pins need no policy: pinned units never move.)
-- Form: single script, placing units by name.

local pins = {
  ["shared/"] = 0,
  ["batch/"] = 1,
}

for _, unit in ipairs(nacre.units) do
  local longest, home = 0, nil
  for prefix, rank in pairs(pins) do
    if #prefix > longest and string.sub(unit.name, 1, #prefix) == prefix then
      longest, home = #prefix, rank
    end
  end
  if home ~= nil and mds[home] ~= nil then
    nacre.place(unit, home)
  end
end
