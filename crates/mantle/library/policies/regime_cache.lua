-- Regime cache: grows until the reads have come down and stay there, then keeps as many keys as there were when that regime began
-- (policies paper, §6: "the start of the third regime as the point to switch to a fixed sized cache"; PAR-11, PAR-12, PAR-15).
-- Nothing to sweep by hand: other growth rates reach the regime at other times and get other limits. Form: hooks for a cache.

local settled = 600    -- seconds without a new regime
local down_to = 0.6    -- of the first regime's rate
local distance = 0.2   -- a rate that differs by more is another regime
local confirm = 6      -- points

function when()
  local s = nacre.state or {}
  if s.limit == nil then
    local regime
    s.stream, regime = nacre.regime(s.stream, cache.time, cache.gets, distance, confirm)
    if regime.number ~= s.number then
      -- It began some points ago: what the cache had then is in the series.
      s.number, s.keys = regime.number, cache.keys
      local times, keys = nacre.series("time"), nacre.series("keys")
      for at = #times, 1, -1 do
        if times[at] >= regime.start then
          s.keys = keys[at]
        end
      end
    end
    if cache.time - regime.start >= settled and regime.rate <= down_to * regime.first_rate then
      s.limit = s.keys
    end
  end
  nacre.state = s
  return s.limit ~= nil
end

function howmuch()
  return nacre.state.limit
end
