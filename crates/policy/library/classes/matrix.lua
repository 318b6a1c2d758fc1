--!profile portable
-- A matrix in the byte stream and an index of its values in the map, which never disagree.
--
-- The example of Malacology (Sevilla et al., EuroSys 2017, §4.2): two native interfaces changed by one method, hence in one transaction. A
-- cell is an integer from -(2^53 - 1) to 2^53 - 1, eight bytes little-endian, row after row. Each cell that is not zero has a key
-- `VALUE/ROW/COLUMN` in the map, so that cells are found by value without reading the matrix. The map's header is `ROWS COLUMNS`.
-- Rows and columns count from 0. A matrix has at most 16,384 cells and
-- 4,096 columns: a whole row is one call.

local LAST = 9007199254740991
local CELLS_MAX = 16384
local COLUMNS_MAX = 4096

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

local function integer(text)
  local n = tonumber(string.match(text or "", "^%-?%d+$"))
  if n == nil or n > LAST or n < -LAST then
    error(-objclass.EINVAL)
  end
  return n
end

local function integers(input)
  local list = {}
  for word in string.gmatch(input:str(), "%S+") do
    list[#list + 1] = integer(word)
  end
  return list
end

local function buffer(text)
  local b = bufferlist.new()
  b:append(text)
  return b
end

local function shape()
  local rows, columns = string.match(objclass.map_read_header():str(), "^(%d+) (%d+)$")
  if rows == nil then
    error(-objclass.ENOENT)
  end
  return tonumber(rows), tonumber(columns)
end

-- Fails unless 0 <= n < bound.
local function inside(n, bound)
  if n == nil or n < 0 or n >= bound then
    error(-objclass.ERANGE)
  end
end

-- Keys of one value are together; the sign and the digits keep keys of a fixed length.
local function prefix(value)
  return string.format("%s%016d/", value < 0 and "-" or "+", math.abs(value))
end
local function key(value, row, column)
  return prefix(value) .. string.format("%05d/%05d", row, column)
end

-- Replaces cells of a row from `column` on. All reads come before the first write, as Ceph needs it.
local function replace(row, column, columns, values)
  local offset = (row * columns + column) * 8
  local old = objclass.read(offset, #values * 8):str()
  local bytes, gone, new = {}, {}, {}
  for i = 1, #values do
    local before, value, at = string.unpack("<i8", old, i * 8 - 7), values[i], column + i - 1
    bytes[i] = string.pack("<i8", value)
    if before ~= value then
      if before ~= 0 then
        gone[#gone + 1] = key(before, row, at)
      end
      if value ~= 0 then
        new[#new + 1] = key(value, row, at)
      end
    end
  end
  objclass.write(offset, #values * 8, buffer(table.concat(bytes)))
  for i = 1, #gone do
    objclass.map_remove_key(gone[i])
  end
  -- One by one: Ceph's map_set_vals fails with EINVAL whatever it is given.
  for i = 1, #new do
    objclass.map_set_val(new[i], bufferlist.new())
  end
end

-- Makes the object a matrix of zeros.
-- input: `ROWS COLUMNS`
-- output: nothing
-- errors: EEXIST the object exists; EFBIG too many cells; EINVAL input
-- example: create "3 4"
-- example: create "3 4" !EEXIST
function create(input)
  local n = integers(input)
  if #n ~= 2 or n[1] < 1 or n[2] < 1 then
    return -objclass.EINVAL
  elseif n[1] > CELLS_MAX or n[2] > COLUMNS_MAX or n[1] * n[2] > CELLS_MAX then
    return -objclass.EFBIG
  end
  objclass.create(true)
  objclass.write_full(buffer(string.rep("\0", n[1] * n[2] * 8)))
  objclass.map_write_header(buffer(string.format("%d %d", n[1], n[2])))
end
publish("create")

-- Sets a cell, in the data and in the index.
-- input: `ROW COLUMN VALUE`
-- output: nothing
-- errors: ENOENT no matrix; ERANGE no such cell; EINVAL input
-- example: set "1 2 -7"
-- example: set "1 4 1" !ERANGE
function set(input)
  local n = integers(input)
  if #n ~= 3 then
    return -objclass.EINVAL
  end
  local rows, columns = shape()
  inside(n[1], rows)
  inside(n[2], columns)
  replace(n[1], n[2], columns, { n[3] })
end
publish("set")

-- Sets a whole row.
-- input: `ROW VALUE…`, as many values as there are columns
-- output: nothing
-- errors: ENOENT no matrix; ERANGE no such row; EINVAL input
-- example: set_row "0 5 0 -7 5"
-- example: set_row "0 1 2 3" !EINVAL
function set_row(input)
  local n = integers(input)
  local rows, columns = shape()
  if #n ~= columns + 1 then
    return -objclass.EINVAL
  end
  inside(n[1], rows)
  replace(table.remove(n, 1), 0, columns, n)
end
publish("set_row")

-- Gives a cell.
-- input: `ROW COLUMN`
-- output: its value
-- errors: ENOENT no matrix; ERANGE no such cell; EINVAL input
-- example: get "1 2" -> "-7"
function get(input, output)
  local n = integers(input)
  if #n ~= 2 then
    return -objclass.EINVAL
  end
  local rows, columns = shape()
  inside(n[1], rows)
  inside(n[2], columns)
  local bytes = objclass.read((n[1] * columns + n[2]) * 8, 8):str()
  output:append(string.format("%d", (string.unpack("<i8", bytes))))
end
publish("get", { read_only = true })

-- Gives a whole row.
-- input: `ROW`
-- output: its values, separated by spaces
-- errors: ENOENT no matrix; ERANGE no such row; EINVAL input
-- example: get_row "0" -> "5 0 -7 5"
function get_row(input, output)
  local n = integers(input)
  if #n ~= 1 then
    return -objclass.EINVAL
  end
  local rows, columns = shape()
  inside(n[1], rows)
  local bytes, values = objclass.read(n[1] * columns * 8, columns * 8):str(), {}
  for i = 1, columns do
    values[i] = string.format("%d", (string.unpack("<i8", bytes, i * 8 - 7)))
  end
  output:append(table.concat(values, " "))
end
publish("get_row", { read_only = true })

-- Finds the cells that hold a value, from the index alone. Zeros are not indexed.
-- input: `VALUE`
-- output: a line `ROW COLUMN` for each of the first 1,000, by row and column
-- errors: EINVAL input, or zero
-- example: find "-7" -> "0 2\n1 2\n"
-- example: find "4" -> ""
function find(input, output)
  local n = integers(input)
  if #n ~= 1 or n[1] == 0 then
    return -objclass.EINVAL
  end
  local names = {}
  for name in pairs((objclass.map_get_vals("", prefix(n[1]), 1000))) do
    names[#names + 1] = name
  end
  table.sort(names)
  for i = 1, #names do
    local row, column = string.match(names[i], "/(%d+)/(%d+)$")
    output:append(string.format("%d %d\n", tonumber(row), tonumber(column)))
  end
end
publish("find", { read_only = true })

-- Reads everything and compares the index with the data.
-- input: nothing
-- output: how many cells are not zero
-- errors: EIO they disagree; ENOENT no matrix
-- example: verify "" -> "4"
function verify(input, output)
  local rows, columns = shape()
  local bytes = objclass.read(0, 0):str()
  if #bytes ~= rows * columns * 8 then
    return -objclass.EIO
  end
  local expected = 0
  local wanted = {}
  for i = 0, rows * columns - 1 do
    local value = string.unpack("<i8", bytes, i * 8 + 1)
    if value ~= 0 then
      wanted[key(value, i // columns, i % columns)] = true
      expected = expected + 1
    end
  end
  local found, after = 0, ""
  repeat
    local count = 0
    for name in pairs((objclass.map_get_keys(after, 1000))) do
      if not wanted[name] then
        return -objclass.EIO
      end
      count = count + 1
      if name > after then
        after = name
      end
    end
    found = found + count
  until count == 0
  if found ~= expected then
    return -objclass.EIO
  end
  output:append(string.format("%d", found))
end
publish("verify", { read_only = true })
