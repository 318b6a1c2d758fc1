-- Regime cache: grows until the reads have come down and stay there, then keeps as many keys as there were when that regime began
-- (policies paper, §6: "the start of the third regime as the point to switch to a fixed sized cache"; PAR-11, PAR-12, PAR-15).
-- Nothing to sweep by hand: other growth rates reach the regime at other times and get other limits. Form: hooks for a cache.
--
-- With `horizon`, how long the run will last: K-means over (time, reads) as the paper does after the run, with what is still to come drawn in as the
-- last reads going on. When the third of four regimes has begun, the keys that there are become the limit.
-- Without: the limit comes when reads are `down_to` of the first regime's for `settled` seconds. A burst at the very start counts as a regime too
-- and lets it decide early: a run that begins so, and whose length is known, should say its horizon.

local horizon = nil    -- seconds, or nil
local settled = 600    -- seconds without a new regime
local down_to = 0.6    -- of the first regime's rate
local distance = 0.2   -- a rate that differs by more is another regime
local confirm = 6      -- points

local function streaming(s)
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
    return s.keys
  end
end

local function foreseen(s)
  -- Means of up to 300 slices of the run, so that the state stays small whatever the horizon.
  local slice = horizon / 300
  s.gets, s.sum, s.count = s.gets or {}, (s.sum or 0) + cache.gets, (s.count or 0) + 1
  if cache.time < (#s.gets + 1) * slice then
    return nil
  end
  s.gets[#s.gets + 1] = s.sum / s.count
  s.sum, s.count = 0, 0
  local known = #s.gets
  if known < 12 then
    return nil
  end
  local last = 0
  for at = known - 11, known do
    last = last + s.gets[at] / 12
  end
  local points = {}
  for at = 1, math.max(300, known) do
    points[at] = {at, s.gets[at] or last}
  end
  local third = nacre.regimes(points, 4)[3]
  -- The first slice that is known to belong to it: now, or the picture has just changed. While reads still fall this is early, as what is drawn in is
  -- higher than what will come.
  if third ~= nil and third.first <= known then
    return cache.keys
  end
end

function when()
  local s = nacre.state or {}
  if s.limit == nil then
    local limit = horizon and foreseen(s) or not horizon and streaming(s) or nil
    -- Decided once; what it took to decide is not needed any more.
    s = limit and {limit = limit} or s
  end
  nacre.state = s
  return s.limit ~= nil
end

function howmuch()
  return nacre.state.limit
end
