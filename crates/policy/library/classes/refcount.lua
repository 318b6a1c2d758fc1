--!profile portable
-- References to an object by tag: the object is removed with its last one.
--
-- Ceph's class of this name, for garbage collection: whoever shares an object adds a reference under a tag of its own, and takes it away when
-- done. Adding a tag twice is one reference, so that a repeated request does no harm. The tags are lines of the attribute `refcount`; a tag has
-- no white space. An object that nobody has counted has no references: `put` on it removes nothing.

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

-- The tags in order; empty if nobody has counted.
local function load()
  local ok, value = pcall(objclass.getxattr, "refcount")
  if not ok and value ~= -ENODATA then
    error(value)
  end
  local tags = {}
  for tag in string.gmatch(ok and value:str() or "", "[^\n]+") do
    tags[#tags + 1] = tag
  end
  return tags
end

local function find(tags, tag)
  for i = 1, #tags do
    if tags[i] == tag then
      return i
    end
  end
end

local function save(tags)
  table.sort(tags)
  local value = bufferlist.new()
  value:append(table.concat(tags, "\n"))
  objclass.setxattr("refcount", value)
end

local function tag_of(input)
  local tag = string.match(input:str(), "^(%S+)%s*$")
  if tag == nil then
    error(-objclass.EINVAL)
  end
  return tag
end

-- Adds a reference.
-- input: `TAG`
-- output: nothing
-- errors: ENOENT no object: a reference does not make one; EINVAL input
-- example: set "maker"
-- example: get "reader-1"
-- example: get "reader-1"
-- example: get "two words" !EINVAL
function get(input)
  local tag = tag_of(input)
  objclass.stat()
  local tags = load()
  if not find(tags, tag) then
    tags[#tags + 1] = tag
    save(tags)
  end
end
publish("get")

-- Takes a reference away; with the last one the object is removed.
-- input: `TAG`
-- output: nothing
-- errors: ENOENT no object, or no reference with this tag: nothing is removed; EINVAL input
-- example: put "maker"
-- example: put "maker" !ENOENT
-- example: put "reader-1"
-- example: read "" !ENOENT
function put(input)
  local tag = tag_of(input)
  objclass.stat()
  local tags = load()
  local at = find(tags, tag)
  if at == nil then
    return -objclass.ENOENT
  end
  table.remove(tags, at)
  if #tags == 0 then
    objclass.remove()
  else
    save(tags)
  end
end
publish("put")

-- Replaces all references. Makes an object that does not exist.
-- input: `TAG…`, at least one
-- output: nothing
-- errors: EINVAL no tag
-- example: set "a b a"
-- example: set "" !EINVAL
function set(input)
  local tags = {}
  for tag in string.gmatch(input:str(), "%S+") do
    if not find(tags, tag) then
      tags[#tags + 1] = tag
    end
  end
  if #tags == 0 then
    return -objclass.EINVAL
  end
  save(tags)
end
publish("set")

-- Lists the references.
-- input: nothing
-- output: a line for each tag, in order
-- errors: ENOENT no object
-- example: read "" -> "a\nb\n"
function read(input, output)
  objclass.stat()
  local tags = load()
  for i = 1, #tags do
    output:append(tags[i] .. "\n")
  end
end
publish("read", { read_only = true })
