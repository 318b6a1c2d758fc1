-- A class for the simulator: eight rows in the byte stream, the same rows in the omap, their sum in an attribute and beside the omap. Every
-- method first looks whether all four say the same; every step changes all of them, in another order each time, some by way of removing
-- the object, or of rolling it back. Whoever sees half a step, or a copy that is not the others', says "disagrees".
local ROWS = 8
local VERSION = "one"

local function text(s)
  local b = bufferlist.new()
  b:append(s)
  return b
end

local function row(n)
  return string.format("%08d", n)
end

local function look(why)
  local rows, sum = {}, 0
  if not objclass.exists() then
    for r = 1, ROWS do rows[r] = 0 end
    return rows, 0
  end
  local data = objclass.read(0, 0):str()
  if #data ~= ROWS * 8 then error("disagrees " .. why .. ": the data has " .. #data .. " bytes") end
  for r = 1, ROWS do
    local cell = string.sub(data, r * 8 - 7, r * 8)
    if objclass.map_get_val("row" .. r):str() ~= cell then error("disagrees " .. why .. ": row " .. r) end
    rows[r] = tonumber(cell)
    sum = sum + rows[r]
  end
  if objclass.getxattr("sum"):str() ~= tostring(sum) then error("disagrees " .. why .. ": the attribute") end
  if objclass.map_read_header():str() ~= tostring(sum) then error("disagrees " .. why .. ": the header") end
  return rows, sum
end

local function change(rows, sum, half)
  local fresh = not objclass.exists()
  local whole = fresh or math.random(4) == 1
  local touched = math.random(ROWS)
  rows[touched] = rows[touched] + 1
  local snapshots, rolled = fresh and {} or objclass.snapshots(), false
  if #snapshots > 0 and math.random(4) == 1 then
    -- What it was at a snapshot, and then all of it anew. One that has been removed is not there, and nothing has happened.
    whole = true
    rolled = pcall(objclass.rollback, snapshots[math.random(#snapshots)])
  elseif whole and not fresh then
    objclass.remove()
  end
  local steps = {
    function()
      if not whole then
        objclass.write((touched - 1) * 8, 8, text(row(rows[touched])))
        return
      end
      local all = ""
      for r = 1, ROWS do all = all .. row(rows[r]) end
      if math.random(2) == 1 then
        objclass.write_full(text(all))
      else
        objclass.truncate(0)
        objclass.append(text(string.sub(all, 1, 20)))
        objclass.append(text(string.sub(all, 21)))
      end
    end,
    function()
      for r = 1, ROWS do
        if whole or r == touched then objclass.map_set_val("row" .. r, text(row(rows[r]))) end
      end
    end,
    function() objclass.setxattr("sum", text(tostring(sum + 1))) end,
    function() objclass.map_write_header(text(tostring(sum + 1))) end,
  }
  local n = #steps
  for i = n, 2, -1 do
    local j = math.random(i)
    steps[i], steps[j] = steps[j], steps[i]
  end
  for i = 1, half and math.random(n) or n do steps[i]() end
  return rolled
end

function step(input, output)
  local rows, sum = look("before")
  if input:str() == "heavy" then
    local x = 0
    for i = 1, 60000 do x = x + i % 7 end
  end
  local half = input:str() == "fail" or input:str() == "refuse"
  local rolled = change(rows, sum, half)
  if input:str() == "fail" then error("on purpose") end
  if input:str() == "refuse" then return -17 end
  -- What is rolled back is read by the next.
  local now = rolled and sum + 1 or select(2, look("after"))
  output:append(VERSION .. " " .. now)
end

function get(input, output)
  local _, sum = look("now")
  output:append(VERSION .. " " .. sum)
end

objclass.register(step)
objclass.register("get", get, {read_only = true})
