--!profile portable
-- Entries in the order of their times, listed and trimmed by range.
--
-- Ceph's class of this name, for change logs. An entry's marker is `TIME_ID`: the time in sixteen digits, then an ID. Entries of one time are
-- in the order of their IDs, byte by byte. An ID that is not given is the object's version and the call's place in its operation, which no other
-- entry has. An entry with a marker that exists replaces it: a repeated request adds nothing. Times are integers from 0 to 2^53 - 1 of any unit,
-- milliseconds by custom. Markers are keys of the map; the map's header is the largest marker that was ever added.

local LAST = 9007199254740991
local LIST_MAX = 1000
local TRIM_MAX = 500
local BYTES_MAX = 512 * 1024

-- Not among Ceph's constants.
local ENODATA = 61

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

local function buffer(text)
  local b = bufferlist.new()
  b:append(text)
  return b
end

-- What `read` gives; nil where there is no object.
local function maybe(read, ...)
  local ok, value = pcall(read, ...)
  if ok then
    return value
  elseif value ~= -objclass.ENOENT then
    error(value)
  end
end

local function stop_at(to)
  return string.format("%016d", to)
end

-- Markers of a page after one that are before the time `to`, in order; their values; and how many were on the page.
local function page(after, to, count)
  local values = maybe(objclass.map_get_vals, after, "", count) or {}
  local markers, size = {}, 0
  for marker in pairs(values) do
    size = size + 1
    if marker < stop_at(to) then
      markers[#markers + 1] = marker
    end
  end
  table.sort(markers)
  return markers, values, size
end

-- Adds an entry.
-- input: `TIME` or `TIME ID`, a newline, then the entry's bytes to the end; an ID has no white space
-- output: nothing
-- errors: EINVAL input
-- example: add "1000 a\nfirst"
-- example: add "1001 a\nthird"
-- example: add "1000 b\nsecond\nwith two lines"
-- example: add "1000 b\nsecond\nwith two lines"
-- example: add "soon\n" !EINVAL
function add(input)
  local text = input:str()
  local time, id, at = string.match(string.sub(text, 1, 400), "^(%d+) ?(%S*)\n()")
  local n = number(time)
  if id == "" then
    id = string.format("%016d.%d", objclass.current_version(), objclass.current_subop_num())
  end
  local marker = string.format("%016d_%s", n, id)
  local header = maybe(objclass.map_read_header)
  objclass.map_set_val(marker, buffer(string.sub(text, at)))
  if header == nil or header:str() < marker then
    objclass.map_write_header(buffer(marker))
  end
end
publish("add")

-- Lists entries with times from FROM up to, and not with, TO; fewer than asked for if they are long.
-- input: `FROM TO COUNT`, or `FROM TO COUNT MARKER` to go on after a marker; COUNT is from 1 to 1,000
-- output: a line `more MARKER` or `end MARKER` (`-` if nothing is listed), then for each entry a line `MARKER BYTES`, so many bytes, and a newline
-- errors: EINVAL input
-- example: list "0 2000 2" -> "more 0000000000001000_b\n0000000000001000_a 5\nfirst\n0000000000001000_b 21\nsecond\nwith two lines\n"
-- example: list "0 2000 2 0000000000001000_b" -> "end 0000000000001001_a\n0000000000001001_a 5\nthird\n"
-- example: list "2000 3000 10" -> "end -\n"
function list(input, output)
  local from, to, count, after = string.match(input:str(), "^(%d+) (%d+) (%d+) ?(%S*)%s*$")
  from, to, count = number(from), number(to), number(count)
  if count < 1 or count > LIST_MAX then
    return -objclass.EINVAL
  end
  -- No marker is sixteen digits alone: this is before all of its time.
  local start = string.format("%016d", from)
  if after > start then
    start = after
  end
  local markers, values, size = page(start, to, count)
  local shown, room = 0, BYTES_MAX
  while shown < #markers and (shown == 0 or #values[markers[shown + 1]] <= room) do
    shown = shown + 1
    room = room - #values[markers[shown]]
  end
  local more = shown < #markers
  if not more and size > 0 and size == #markers then
    -- A page may be short because its values are long: only the next key tells.
    for marker in pairs((objclass.map_get_keys(markers[size], 1))) do
      more = marker < stop_at(to)
    end
  end
  output:append((more and "more " or "end ") .. (shown > 0 and markers[shown] or "-") .. "\n")
  for i = 1, shown do
    local value = values[markers[i]]
    output:append(string.format("%s %d\n", markers[i], #value))
    output:append(value:str())
    output:append("\n")
  end
end
publish("list", { read_only = true })

-- Removes up to 500 entries with times from FROM up to, and not with, TO: call it until it fails with ENODATA.
-- input: `FROM TO`
-- output: nothing
-- errors: ENODATA there is nothing to remove; EINVAL input
-- example: trim "0 1001"
-- example: trim "0 1001" !ENODATA
-- example: list "0 2000 10" -> "end 0000000000001001_a\n0000000000001001_a 5\nthird\n"
function trim(input)
  local from, to = string.match(input:str(), "^(%d+) (%d+)%s*$")
  local markers = page(string.format("%016d", number(from)), number(to), TRIM_MAX)
  if #markers == 0 then
    return -ENODATA
  end
  for i = 1, #markers do
    objclass.map_remove_key(markers[i])
  end
end
publish("trim")

-- Gives the largest marker that was ever added, also if its entry was trimmed.
-- input: nothing
-- output: the marker; nothing if there was never one
-- errors: none
-- example: info "" -> "0000000000001001_a"
function info(input, output)
  local header = maybe(objclass.map_read_header)
  if header ~= nil then
    output:append(header:str())
  end
end
publish("info", { read_only = true })
