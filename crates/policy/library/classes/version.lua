--!profile portable
-- A version number that its users raise and compare: compare-and-set for whatever the object holds.
--
-- Ceph's class of this name. The version is a number, and a tag that tells histories apart (`-` is none); the attribute `version` holds both
-- as `NUMBER TAG`. An object without one is at `0 -`. Put `check` or `inc_if` into the same operation as a write: if the condition does not hold,
-- the whole operation fails with ECANCELED and nothing is written.
--
-- Conditions are words `OPERATOR VALUE`, all of which must hold: eq, ne, lt, le, gt, ge compare the number; tag_eq and tag_ne the tag.

local LAST = 9007199254740991
-- Not among Ceph's constants.
local ENODATA, ECANCELED = 61, 125

-- Makes a global function a method. Ceph knows an errno only as what a method returns, so one that is raised is returned; and no `nil`.
local function publish(name, flags)
  local f = _G[name]
  _G[name] = function(input, output)
    local ok, value = pcall(f, input, output)
    if not ok and type(value) ~= "number" then
      error(value, 0)
    end
    return value or 0
  end
  objclass.register(_G[name], flags)
end

local function number(text)
  local n = tonumber(string.match(text or "", "^%d+$"))
  if n == nil or n > LAST then
    error(-objclass.EINVAL)
  end
  return n
end

local function load()
  local ok, value = pcall(objclass.getxattr, "version")
  if not ok then
    if value ~= -ENODATA and value ~= -objclass.ENOENT then
      error(value)
    end
    return 0, "-"
  end
  local text, tag = string.match(value:str(), "^(%d+) (%S+)$")
  if text == nil then
    error(-objclass.EIO)
  end
  return tonumber(text), tag
end

local function save(n, tag)
  if n > LAST then
    error(-objclass.ERANGE)
  end
  local value = bufferlist.new()
  value:append(string.format("%d %s", n, tag))
  objclass.setxattr("version", value)
end

local function compare(operator, a, b)
  if operator == "eq" then
    return a == b
  elseif operator == "ne" then
    return a ~= b
  elseif operator == "lt" then
    return a < b
  elseif operator == "le" then
    return a <= b
  elseif operator == "gt" then
    return a > b
  elseif operator == "ge" then
    return a >= b
  end
  error(-objclass.EINVAL)
end

-- Fails unless all conditions of the text hold; at least one is needed.
local function demand(text, n, tag)
  local words = {}
  for word in string.gmatch(text, "%S+") do
    words[#words + 1] = word
  end
  if #words == 0 or #words % 2 ~= 0 then
    error(-objclass.EINVAL)
  end
  for i = 1, #words, 2 do
    local operator, value, holds = words[i], words[i + 1], nil
    if operator == "tag_eq" or operator == "tag_ne" then
      holds = (tag == value) == (operator == "tag_eq")
    else
      holds = compare(operator, n, number(value))
    end
    if not holds then
      error(-ECANCELED)
    end
  end
end

-- Sets number and tag.
-- input: `NUMBER`, or `NUMBER TAG`
-- output: nothing
-- errors: EINVAL input
-- example: set "41 blue"
-- example: set "9007199254740992" !EINVAL
function set(input)
  local text, tag = string.match(input:str(), "^(%d+) ?(%S*)%s*$")
  save(number(text), tag ~= "" and tag or "-")
end
publish("set")

-- Adds one to the number.
-- input: nothing
-- output: nothing: read it with `read`
-- errors: ERANGE it is 2^53 - 1 already
-- example: inc ""
function inc()
  local n, tag = load()
  save(n + 1, tag)
end
publish("inc")

-- Adds one to the number if the conditions hold.
-- input: conditions
-- output: nothing
-- errors: ECANCELED a condition does not hold; EINVAL input; ERANGE
-- example: inc_if "eq 42 tag_eq blue"
-- example: inc_if "eq 42" !ECANCELED
function inc_if(input)
  local n, tag = load()
  demand(input:str(), n, tag)
  save(n + 1, tag)
end
publish("inc_if")

-- Fails unless the conditions hold.
-- input: conditions
-- output: nothing
-- errors: ECANCELED a condition does not hold; EINVAL input
-- example: check "ge 43 lt 44 tag_ne red"
-- example: check "gt 43" !ECANCELED
-- example: check "about 43" !EINVAL
function check(input)
  demand(input:str(), load())
end
publish("check", { read_only = true })

-- Gives number and tag.
-- input: nothing
-- output: `NUMBER TAG`
-- errors: EIO the attribute holds something else
-- example: read "" -> "43 blue"
function read(input, output)
  output:append(string.format("%d %s", load()))
end
publish("read", { read_only = true })
