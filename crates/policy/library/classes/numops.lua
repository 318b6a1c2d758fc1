--!profile portable
-- Arithmetic on numbers in the map: exact integers, or refused.
--
-- A number is a key of the map with decimal text, as a shell reads it. A missing key counts as 0, as in Ceph's class of this name. All values,
-- operands and results are integers from -(2^53 - 1) to 2^53 - 1: what would leave that range or leave a remainder fails with ERANGE and
-- changes nothing.

local LAST = 9007199254740991

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

local function integer(text, errno)
  local n = tonumber(string.match(text or "", "^%-?%d+$"))
  if n == nil or n > LAST or n < -LAST then
    error(-errno)
  end
  return n
end

local function value_of(key)
  local ok, value = pcall(objclass.map_get_val, key)
  if ok then
    return integer(value:str(), objclass.EIO)
  elseif value ~= -objclass.ENOENT then
    error(value)
  end
  return 0
end

local function change(input, compute)
  local key, text = string.match(input:str(), "^(%S+) (%S+)%s*$")
  local operand = integer(text, objclass.EINVAL)
  local result = compute(value_of(key), operand)
  -- Not a number, infinite, or with a fraction: not equal to its own whole part.
  if result ~= math.floor(result) or result > LAST or result < -LAST then
    error(-objclass.ERANGE)
  end
  local value = bufferlist.new()
  value:append(string.format("%d", result))
  objclass.map_set_val(key, value)
end

-- Adds to a number.
-- input: `KEY NUMBER`; a key has no white space
-- output: nothing: read it with `get`
-- errors: ERANGE the result is not exact; EINVAL input; EIO the stored value is no integer
-- example: add "visits 40"
-- example: add "visits 2"
-- example: add "visits 9007199254740991" !ERANGE
function add(input)
  change(input, function(a, b)
    return a + b
  end)
end
publish("add")

-- Subtracts from a number.
-- input: `KEY NUMBER`
-- output: nothing
-- errors: as add's
-- example: sub "visits 2"
-- example: sub "visits two" !EINVAL
function sub(input)
  change(input, function(a, b)
    return a - b
  end)
end
publish("sub")

-- Multiplies a number.
-- input: `KEY NUMBER`
-- output: nothing
-- errors: as add's
-- example: mul "visits 3"
-- example: mul "visits 9007199254740991" !ERANGE
function mul(input)
  change(input, function(a, b)
    -- As floating point: a product of integers would wrap around in other Luas.
    return (a + 0.0) * b
  end)
end
publish("mul")

-- Divides a number, if nothing remains.
-- input: `KEY NUMBER`
-- output: nothing
-- errors: as add's; EINVAL by zero
-- example: div "visits 7" !ERANGE
-- example: div "visits 0" !EINVAL
-- example: div "visits 6"
function div(input)
  change(input, function(a, b)
    if b == 0 then
      error(-objclass.EINVAL)
    elseif a % b ~= 0 then
      error(-objclass.ERANGE)
    end
    return a // b
  end)
end
publish("div")

-- Makes a number the larger of itself and another.
-- input: `KEY NUMBER`
-- output: nothing
-- errors: as add's
-- example: max "visits 21"
-- example: max "visits 5"
function max(input)
  change(input, math.max)
end
publish("max")

-- Makes a number the smaller of itself and another.
-- input: `KEY NUMBER`
-- output: nothing
-- errors: as add's
-- example: min "low -3"
function min(input)
  change(input, math.min)
end
publish("min")

-- Gives a number.
-- input: `KEY`
-- output: the number; 0 if it was never changed
-- errors: EINVAL input; EIO the stored value is no integer
-- example: get "visits" -> "21"
-- example: get "low" -> "-3"
-- example: get "nothing" -> "0"
function get(input, output)
  local key = string.match(input:str(), "^(%S+)%s*$")
  if key == nil then
    return -objclass.EINVAL
  end
  output:append(string.format("%d", value_of(key)))
end
publish("get", { read_only = true })
