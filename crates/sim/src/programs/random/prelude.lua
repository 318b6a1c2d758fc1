-- What every random class begins with. Above it stand VERSION, SELF (this class's name) and CLASSES (all names, in order).
--
-- An object carries its own history: the attribute `history` names every call that changed it, `ID:V1.V2.V3,` with the version of each class
-- that ran. A method's output is its place in the history, a digest of all that can be seen of the object, and one of what the body saw.
-- A call that fails says its place in its message, and takes none.
local PRIME = 4294967291

local function mix(h, s)
  h = (h * 1000003 + #s) % PRIME
  -- Sixteen at a time: a call costs more than the sum.
  local whole = #s - #s % 16
  for i = 1, whole, 16 do
    local a, b, c, d, e, f, g, j, k, l, m, n, o, p, q, r = string.byte(s, i, i + 15)
    h = (h * 1000003 + a + b * 256 + c * 65536 + d * 16777216) % PRIME
    h = (h * 1000003 + e + f * 256 + g * 65536 + j * 16777216) % PRIME
    h = (h * 1000003 + k + l * 256 + m * 65536 + n * 16777216) % PRIME
    h = (h * 1000003 + o + p * 256 + q * 65536 + r * 16777216) % PRIME
  end
  for i = whole + 1, #s do h = (h * 1000003 + string.byte(s, i)) % PRIME end
  return h
end

local heard = 0
local function say(what) heard = mix(heard, tostring(what)) end

-- Errors that are caught: what was done before them stays done.
local function try(body)
  local ok, why = pcall(body)
  say(ok)
  if not ok then say(why) end
end

local function size()
  if not objclass.exists() then return 0 end
  return (objclass.stat())
end

local function blob(length)
  local letter = string.char(96 + math.random(26))
  -- The simulated store takes a quarter of a megabyte at once.
  return bufferlist.new(string.rep(letter, math.min(length, 3000)))
end

local function sorted(t)
  local keys = {}
  for key in pairs(t) do keys[#keys + 1] = key end
  table.sort(keys)
  return keys
end

local function say_all(t)
  for _, key in ipairs(sorted(t)) do
    say(key)
    say(if type(t[key]) == "userdata" then t[key]:str() else t[key])
  end
end

local function history()
  if not objclass.exists() then return "", 0 end
  local ok, all = pcall(objclass.getxattr, "history")
  if not ok then return "", 0 end
  local text = all:str()
  return text, select(2, string.gsub(text, ",", ","))
end

-- All but the history.
local function seen()
  if not objclass.exists() then return 0 end
  local h = mix(mix(1, tostring(size())), tostring(objclass.checksum(0, 0)))
  local attributes = objclass.getxattrs()
  for _, name in ipairs(sorted(attributes)) do
    if name ~= "history" then h = mix(mix(h, name), attributes[name]:str()) end
  end
  local after, more = "", true
  while more do
    local page
    page, more = objclass.map_get_vals(after, "", 7)
    for _, key in ipairs(sorted(page)) do
      h = mix(mix(h, key), page[key]:str())
      after = key
    end
  end
  return mix(h, objclass.map_read_header():str())
end

local function cast()
  local all = {}
  for i, name in ipairs(CLASSES) do
    if name == SELF then
      all[i] = tostring(VERSION)
    else
      local ok, version = pcall(objclass.call, name, "version", "")
      all[i] = if ok then version:str() else "0"
    end
  end
  return table.concat(all, ".")
end

local function method(name, body)
  objclass.register(name, function(input, output)
    local id, kind, arg = string.match(input:str(), "^(%d+) (%l) (.*)$")
    math.randomseed(tonumber(id))
    local before, count = history()
    local ok, why = pcall(function()
      if kind == "h" then
        for i = 1, 40000 do heard = (heard + i % 7) % PRIME end
      end
      body(arg)
      if size() > 12000 then objclass.truncate(4000) end
      if kind == "e" then error("on purpose", 0) end
    end)
    if not ok then error("at " .. count .. " " .. cast() .. ": " .. tostring(why), 0) end
    if kind == "l" then while true do heard = heard + 1 end end
    if kind == "g" then
      local all = {}
      for i = 1, 64 do all[i] = string.rep(tostring(i), 1000000) end
    end
    objclass.setxattr("history", bufferlist.new(before .. id .. ":" .. cast() .. ","))
    output:append((count + 1) .. " " .. seen() .. " " .. heard)
    if kind == "o" then output:append(string.rep(" ", 6000)) end
  end)
end

-- For other classes: no history of its own.
local function inner(name, body)
  objclass.register(name, function(input, output)
    body(input:str())
    output:append(tostring(heard))
  end)
end

objclass.register("version", function(_, output) output:append(tostring(VERSION)) end, { read_only = true })

-- `ID KIND`: with kind `o`, more than a writing method could return.
objclass.register("look", function(input, output)
  local _, count = history()
  output:append(count .. " " .. seen())
  if string.find(input:str(), "o") then output:append(string.rep(" ", 20000)) end
end, { read_only = true })
