--!profile luau
-- Entries of a shared log: write-once positions, and epochs that shut out the stale.
--
-- This is the storage interface of CORFU (Balakrishnan et al., NSDI 2012, §3.1) as Malacology builds ZLog on it (Sevilla et al., EuroSys 2017,
-- §5.2.2). A log stripes its positions over objects of this class; an object knows only the positions that were sent to it.
--
--   unwritten ──write──▶ written ──trim──▶ trimmed
--       └───────fill───▶ filled  ──trim──────▲
--
-- Every call names the epoch of its sender. A call of an older epoch than the sealed one fails with ESTALE: the sender must learn the new view first.
-- Positions and epochs are integers from 0 to 2^53 - 1 in decimal; larger ones are refused with EINVAL. Entries are bytes, at most 1 MiB less one.
-- A refused call says what the position is: EEXIST written, ENODATA filled, EIDRM trimmed, ENOENT unwritten.
--
-- Where things are: the map's header is `EPOCH MAX LOW`, which the daemon has at hand with every call. An entry is one key of the map, sixteen
-- digits, with one letter (D data, F filled, T trimmed) before its bytes. One key is one step of the log and of each replica; entries in the byte
-- stream would need a second one for their index, and trimming could free whole blocks only. A position beyond MAX is unwritten: appending
-- asks the store for nothing. Below LOW there are no keys, and everything is trimmed.

local LAST = 9007199254740991
local STATES = { D = objclass.EEXIST, F = objclass.ENODATA, T = objclass.EIDRM }

-- What `read` gives; nil where there is nothing.
local function maybe(read, ...)
  local ok, value = pcall(read, ...)
  if ok then
    return value
  elseif value ~= -objclass.ENOENT then
    error(value)
  end
end

local function load()
  local header = maybe(objclass.map_read_header)
  local epoch, max, low = string.match(header and header:str() or "", "^(%d+) (%-?%d+) (%d+)$")
  return { epoch = tonumber(epoch or 0), max = tonumber(max or -1), low = tonumber(low or 0) }
end

local function save(log)
  objclass.map_write_header(string.format("%d %d %d", log.epoch, log.max, log.low))
end

local function number(text)
  local n = tonumber(text)
  if n == nil or n > LAST then
    error(-objclass.EINVAL)
  end
  return n
end

-- The log as it is, the position, and what follows it in the input.
local function enter(input, pattern)
  local text = input:str()
  local epoch, pos, rest = string.match(string.sub(text, 1, 64), pattern)
  epoch, pos = number(epoch), number(pos)
  local log = load()
  if epoch < log.epoch then
    error(-objclass.ESTALE)
  end
  return log, pos, string.sub(text, rest)
end
local POSITION, ENTRY = "^(%d+) (%d+)%s*()$", "^(%d+) (%d+)\n()"

local function key(pos)
  return string.format("%016d", pos)
end

-- A position's letter and bytes; nil if it is unwritten.
local function look(log, pos)
  if pos < log.low then
    return "T"
  elseif pos <= log.max then
    local value = maybe(objclass.map_get_val, key(pos))
    return value and value:str()
  end
end

local function put(log, pos, value)
  objclass.map_set_val(key(pos), value)
  if pos > log.max then
    log.max = pos
    save(log)
  end
end

local function refuse(value)
  error(-STATES[string.sub(value, 1, 1)])
end

-- Writes an entry at a position that nobody used.
-- input: `EPOCH POSITION`, a newline, then the entry's bytes to the end
-- output: nothing
-- errors: ESTALE the epoch is old; EEXIST written; ENODATA filled; EIDRM trimmed; EINVAL input; EFBIG too long
-- example: write "1 0\nhello"
-- example: write "1 0\nagain" !EEXIST
-- example: write "1 9007199254740992\nx" !EINVAL
function write(input)
  local log, pos, data = enter(input, ENTRY)
  local value = look(log, pos)
  if value then
    refuse(value)
  end
  put(log, pos, "D" .. data)
end
objclass.register(write)

-- Gives the entry at a position.
-- input: `EPOCH POSITION`
-- output: the entry's bytes
-- errors: ESTALE the epoch is old; ENOENT unwritten; ENODATA filled; EIDRM trimmed; EINVAL input
-- example: read "1 0" -> "hello"
-- example: read "1 1" !ENOENT
function read(input, output)
  local log, pos = enter(input, POSITION)
  local value = look(log, pos)
  if not value then
    return -objclass.ENOENT
  elseif string.sub(value, 1, 1) ~= "D" then
    refuse(value)
  end
  output:append(string.sub(value, 2))
end
objclass.register(read, { read_only = true })

-- Closes a hole: nobody can write the position any more. Filling a filled position is no error.
-- input: `EPOCH POSITION`
-- output: nothing
-- errors: ESTALE the epoch is old; EEXIST written; EIDRM trimmed; EINVAL input
-- example: fill "1 2"
-- example: write "1 2\nlate" !ENODATA
-- example: read "1 2" !ENODATA
-- example: fill "1 0" !EEXIST
function fill(input)
  local log, pos = enter(input, POSITION)
  local value = look(log, pos)
  if not value then
    put(log, pos, "F")
  elseif value ~= "F" then
    refuse(value)
  end
end
objclass.register(fill)

-- Frees a position's entry for good, whatever it was. Trimming a trimmed position is no error.
-- input: `EPOCH POSITION`
-- output: nothing
-- errors: ESTALE the epoch is old; EINVAL input
-- example: trim "1 0"
-- example: read "1 0" !EIDRM
-- example: write "1 0\nback" !EIDRM
function trim(input)
  local log, pos = enter(input, POSITION)
  if pos >= log.low then
    put(log, pos, "T")
  end
end
objclass.register(trim)

-- Trims all positions below one at once, and frees up to 500 of their entries: call it until it says `done`.
-- input: `EPOCH POSITION`
-- output: how many were freed, a space, and `more` or `done`
-- errors: ESTALE the epoch is old; EINVAL input
-- example: trim_to "1 3" -> "2 done"
-- example: read "1 1" !EIDRM
function trim_to(input, output)
  local log, pos = enter(input, POSITION)
  local freed, all, below = 0, true, key(math.max(pos, log.low))
  local keys, more = {}, false
  if log.max >= 0 then
    keys, more = objclass.map_get_keys("", 500)
  end
  for name in pairs(keys) do
    if name < below then
      objclass.map_remove_key(name)
      freed = freed + 1
    else
      all = false
    end
  end
  if pos > log.low then
    log.low, log.max = pos, math.max(log.max, pos - 1)
    save(log)
  end
  output:append(freed .. (if more and all then " more" else " done"))
end
objclass.register(trim_to)

-- Installs a larger epoch and says how far the log was written, in one step: no write of an older epoch comes after.
-- input: `EPOCH`
-- output: the largest position that was written, filled or trimmed; -1 if there is none
-- errors: ESTALE the epoch is not larger than the sealed one; EINVAL input
-- example: seal "2" -> "2"
-- example: seal "2" !ESTALE
-- example: write "1 3\nstale" !ESTALE
-- example: write "2 3\nfresh"
function seal(input, output)
  local epoch, log = number(string.match(input:str(), "^(%d+)%s*$")), load()
  if epoch <= log.epoch then
    return -objclass.ESTALE
  end
  log.epoch = epoch
  save(log)
  output:append(tostring(log.max))
end
objclass.register(seal)

-- Says how far the log was written.
-- input: `EPOCH`
-- output: as seal's
-- errors: ESTALE the epoch is old; EINVAL input
-- example: max_position "2" -> "3"
-- example: max_position "1" !ESTALE
function max_position(input, output)
  local epoch, log = number(string.match(input:str(), "^(%d+)%s*$")), load()
  if epoch < log.epoch then
    return -objclass.ESTALE
  end
  output:append(tostring(log.max))
end
objclass.register(max_position, { read_only = true })
