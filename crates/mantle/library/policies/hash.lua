-- Hash: every unit lives where its name says (SC 2015: "a distributed metadata service with hashing"; CephFS's distributed ephemeral pins).
-- Even in numbers, blind to load. Highest random weight (Thaler, Ravishankar 1998): when a rank goes, only its units move.
-- Form: single script, placing units by name.

local function weight(name, rank)
  local hash = 2166136261
  for at = 1, #name do
    hash = bit32.bxor(hash, string.byte(name, at))
    -- FNV-1a in 32 bits: the prime is 2^24 + 403, and a product of both would not be exact.
    hash = (bit32.lshift(hash, 24) + hash * 403) % 4294967296
  end
  -- The rank goes in last and is mixed well: FNV alone barely changes its upper bits.
  hash = bit32.bxor(hash, rank * 2654435769 % 4294967296)
  hash = bit32.bxor(hash, bit32.rshift(hash, 15)) * 40503 % 4294967296
  hash = bit32.bxor(hash, bit32.rshift(hash, 13)) * 60493 % 4294967296
  return bit32.bxor(hash, bit32.rshift(hash, 16))
end

for _, unit in ipairs(nacre.units) do
  local best, home = -1, whoami
  for rank in pairs(mds) do
    local w = weight(unit.name, rank)
    if w > best or (w == best and rank < home) then
      best, home = w, rank
    end
  end
  nacre.place(unit, home)
end
