--!profile luau
-- Checksums of extents of the data, computed where the data is and kept until the data changes.
--
-- The example of Malacology (Sevilla et al., EuroSys 2017, §4.2): eight characters cross the network instead of the extent, and the second who
-- asks does not make the daemon read it. A checksum is CRC-32C in eight hexadecimal digits. It is kept in the attribute
-- `~checksum.OFFSET.LENGTH` as `CHECKSUM VERSION`, the version of the object it was computed at. Attributes whose names begin with `~` describe the
-- data: any write to the data, by whatever operation, removes them with it, so what is kept is never of other data.

local LAST = 9007199254740991
local KEPT_MAX = 64

local function extent(input)
  local offset, length = string.match(input:str(), "^(%d+) (%d+)%s*$")
  offset, length = tonumber(offset), tonumber(length)
  if offset == nil or offset > LAST or length > LAST then
    error(-objclass.EINVAL)
  end
  return offset, length, string.format("~checksum.%d.%d", offset, length)
end

local function kept(name)
  local ok, value = pcall(objclass.getxattr, name)
  if ok then
    return string.match(value:str(), "^%x+")
  elseif value ~= -objclass.ENODATA then
    error(value)
  end
end

-- Gives the checksum of an extent, computes it if need be, and keeps up to 64 per object.
-- input: `OFFSET LENGTH`; length 0 is to the end. What is beyond the end does not count
-- output: eight hexadecimal digits, a space, and `kept` or `computed`
-- errors: ENOENT no object; EINVAL input; EFBIG the extent is longer than one operation may read
-- example: get "0 9" !ENOENT
-- setup: write "123456789"
-- example: get "0 9" -> "e3069283 computed"
-- example: get "0 9" -> "e3069283 kept"
-- setup: write "12345678x"
-- example: get "0 8" -> "6087809a computed"
function get(input, output)
  local offset, length, name = extent(input)
  local sum = kept(name)
  if sum then
    output:append(sum .. " kept")
    return
  end
  sum = string.format("%08x", nacre.checksum(offset, length))
  local count = 0
  for other in pairs(objclass.getxattrs()) do
    if string.sub(other, 1, 10) == "~checksum." then
      count = count + 1
    end
  end
  if count < KEPT_MAX then
    objclass.setxattr(name, sum .. " " .. table.concat({ nacre.version() }, "."))
  end
  output:append(sum .. " computed")
end
objclass.register(get)

-- Gives the checksum of an extent and keeps nothing.
-- input: `OFFSET LENGTH`, as get's
-- output: eight hexadecimal digits
-- errors: as get's
-- example: peek "0 8" -> "6087809a"
function peek(input, output)
  local offset, length, name = extent(input)
  output:append(kept(name) or string.format("%08x", nacre.checksum(offset, length)))
end
objclass.register(peek, { read_only = true })

-- Fails unless an extent has a checksum: the first part of an operation that depends on the data.
-- input: `OFFSET LENGTH CHECKSUM`
-- output: nothing
-- errors: ECANCELED it has another one; ENOENT no object; EINVAL input
-- example: check "0 8 6087809a"
-- example: check "0 8 00000000" !ECANCELED
function check(input)
  local wanted = string.match(input:str(), " (%x%x%x%x%x%x%x%x)%s*$")
  if wanted == nil then
    return -objclass.EINVAL
  end
  local offset, length, name = extent(bufferlist.new((string.gsub(input:str(), " %x+%s*$", ""))))
  if (kept(name) or string.format("%08x", nacre.checksum(offset, length))) ~= string.lower(wanted) then
    return -objclass.ECANCELED
  end
end
objclass.register(check, { read_only = true })
