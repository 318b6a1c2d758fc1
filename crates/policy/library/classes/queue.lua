--!profile luau
-- A bounded first-in, first-out queue, with data of its owner beside it.
--
-- Entries are bytes, at most 1 MiB; each gets a position, counted from 0 and never used again. Two ways to consume: `dequeue` takes one entry
-- (at most once: who loses the answer and does not repeat the request loses the entry), or `list` and then `remove_to` (at least once). The
-- urgent data are up to 4,096 bytes that the owner reads and writes with the queue: a cursor, say.
--
-- An entry is a key of the map, sixteen digits. The map's header is `HEAD TAIL BYTES ENTRIES_MAX BYTES_MAX`, a newline, and the urgent data.

local LAST = 9007199254740991
local URGENT_MAX = 4096
local LIST_MAX = 1000
local REMOVE_MAX = 500
local BYTES_MAX = 512 * 1024

local function number(text)
  local n = tonumber(text)
  if n == nil or n > LAST then
    error(-objclass.EINVAL)
  end
  return n
end

local function load()
  local head, tail, bytes, entries_max, bytes_max, urgent =
    string.match(objclass.map_read_header():str(), "^(%d+) (%d+) (%d+) (%d+) (%d+)\n(.*)$")
  if head == nil then
    error(-objclass.ENOENT)
  end
  return {
    head = tonumber(head), tail = tonumber(tail), bytes = tonumber(bytes),
    entries_max = tonumber(entries_max), bytes_max = tonumber(bytes_max), urgent = urgent,
  }
end

local function save(q)
  local counts = string.format("%d %d %d %d %d\n", q.head, q.tail, q.bytes, q.entries_max, q.bytes_max)
  objclass.map_write_header(counts .. q.urgent)
end

local function key(position)
  return string.format("%016d", position)
end

-- Entries from a position on, fewer if they are long.
local function page(position, count)
  local after = if position > 0 then key(position - 1) else ""
  return (objclass.map_get_vals(after, "", count))
end

-- Makes a queue.
-- input: `ENTRIES_MAX BYTES_MAX`, both from 1; then, if wanted, a newline and urgent data
-- output: nothing
-- errors: EEXIST the object exists; EINVAL input; EFBIG urgent data too long
-- example: init "3 100\ncursor=0"
-- example: init "3 100" !EEXIST
function init(input)
  local entries_max, bytes_max, urgent = string.match(input:str(), "^(%d+) (%d+)\n?(.*)$")
  local q = { head = 0, tail = 0, bytes = 0, entries_max = number(entries_max), bytes_max = number(bytes_max), urgent = urgent }
  if q.entries_max < 1 or q.bytes_max < 1 then
    return -objclass.EINVAL
  elseif #urgent > URGENT_MAX then
    return -objclass.EFBIG
  end
  objclass.create(true)
  save(q)
end
objclass.register(init)

-- Adds an entry at the end.
-- input: the entry's bytes
-- output: its position
-- errors: ENOSPC the queue is full; ENOENT no queue
-- example: enqueue "one" -> "0"
-- example: enqueue "two" -> "1"
-- example: enqueue "three" -> "2"
-- example: enqueue "four" !ENOSPC
function enqueue(input, output)
  local q = load()
  if q.tail - q.head >= q.entries_max or q.bytes + #input > q.bytes_max then
    return -objclass.ENOSPC
  end
  objclass.map_set_val(key(q.tail), input)
  output:append(tostring(q.tail))
  q.tail, q.bytes = q.tail + 1, q.bytes + #input
  save(q)
end
objclass.register(enqueue)

-- Takes the first entry.
-- input: nothing
-- output: its bytes
-- errors: ENODATA the queue is empty; ENOENT no queue
-- example: dequeue "" -> "one"
function dequeue(input, output)
  local q = load()
  if q.head == q.tail then
    return -objclass.ENODATA
  end
  local value = objclass.map_get_val(key(q.head))
  objclass.map_remove_key(key(q.head))
  q.head, q.bytes = q.head + 1, q.bytes - #value
  save(q)
  output:append(value)
end
objclass.register(dequeue)

-- Gives the first entry and leaves it.
-- input: nothing
-- output: its bytes
-- errors: ENODATA the queue is empty; ENOENT no queue
-- example: peek "" -> "two"
function peek(input, output)
  local q = load()
  if q.head == q.tail then
    return -objclass.ENODATA
  end
  output:append(objclass.map_get_val(key(q.head)))
end
objclass.register(peek, { read_only = true })

-- Lists entries from a position on, fewer if they are long.
-- input: `POSITION COUNT`, COUNT from 1 to 1,000
-- output: a line `more` or `end`, then for each entry a line `POSITION BYTES`, so many bytes, and a newline
-- errors: EINVAL input; ENOENT no queue
-- example: list "0 1" -> "more\n1 3\ntwo\n"
-- example: list "2 10" -> "end\n2 5\nthree\n"
function list(input, output)
  local position, count = string.match(input:str(), "^(%d+) (%d+)%s*$")
  position, count = number(position), number(count)
  if count < 1 or count > LIST_MAX then
    return -objclass.EINVAL
  end
  local q, lines, room = load(), {}, BYTES_MAX
  local at = math.max(position, q.head)
  local values = page(at, count)
  while at < q.tail and #lines < count do
    local value = values[key(at)]
    if value == nil or #value > room and #lines > 0 then
      break
    end
    room = room - #value
    table.insert(lines, string.format("%d %d\n%s\n", at, #value, value:str()))
    at = at + 1
  end
  output:append(if at < q.tail then "more\n" else "end\n")
  for _, line in ipairs(lines) do
    output:append(line)
  end
end
objclass.register(list, { read_only = true })

-- Removes up to 500 entries before a position: call it until it says `done`.
-- input: `POSITION`
-- output: how many were removed, a space, and `more` or `done`
-- errors: ERANGE the position is behind the end; EINVAL input; ENOENT no queue
-- example: remove_to "2" -> "1 done"
-- example: remove_to "4" !ERANGE
function remove_to(input, output)
  local q, to = load(), number(string.match(input:str(), "^(%d+)%s*$"))
  if to > q.tail then
    return -objclass.ERANGE
  end
  local removed, values = 0, page(q.head, REMOVE_MAX)
  while q.head < to and values[key(q.head)] do
    q.bytes = q.bytes - #values[key(q.head)]
    objclass.map_remove_key(key(q.head))
    q.head, removed = q.head + 1, removed + 1
  end
  if removed > 0 then
    save(q)
  end
  output:append(removed .. (if q.head < to then " more" else " done"))
end
objclass.register(remove_to)

-- Gives the urgent data.
-- input: nothing
-- output: they
-- errors: ENOENT no queue
-- example: urgent "" -> "cursor=0"
function urgent(input, output)
  output:append(load().urgent)
end
objclass.register(urgent, { read_only = true })

-- Replaces the urgent data.
-- input: they
-- output: nothing
-- errors: EFBIG too long; ENOENT no queue
-- example: set_urgent "cursor=2"
-- example: urgent "" -> "cursor=2"
function set_urgent(input)
  local q = load()
  if #input > URGENT_MAX then
    return -objclass.EFBIG
  end
  q.urgent = input:str()
  save(q)
end
objclass.register(set_urgent)

-- Says how full the queue is.
-- input: nothing
-- output: `HEAD TAIL BYTES ENTRIES_MAX BYTES_MAX`: the first entry's position, the next one's, and the rest in entries and bytes
-- errors: ENOENT no queue
-- example: info "" -> "2 3 5 3 100"
function info(input, output)
  local q = load()
  output:append(string.format("%d %d %d %d %d", q.head, q.tail, q.bytes, q.entries_max, q.bytes_max))
end
objclass.register(info, { read_only = true })
