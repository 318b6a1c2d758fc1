--!profile luau
-- Advisory locks on an object, exclusive or shared, that expire.
--
-- Ceph's class of this name: a lock has a name, a type, and a tag that all its holders give; a holder is a client with a cookie, so that one
-- client can hold a shared lock several times. Who asks and when comes with the operation, never from the caller's text: nobody can
-- hold or renew a lock in another's name, and all replicas agree on what has expired. A lock binds those who ask for it; a plain write does
-- not ask. Put `check` into the same operation as the write to be bound. A client without a name is known by a number that it loses when it ends.
--
-- A lock is the attribute `lock.NAME`: a line `TYPE TAG`, then for each holder a line `CLIENT COOKIE EXPIRES DESCRIPTION`, in milliseconds since
-- 1970, 0 for never. Names, cookies and tags have no white space. The tag `-` is no tag. Without a holder there is no attribute.

local LAST = 9007199254740991

local function me()
  -- One word, whatever a client is called.
  return (string.gsub(nacre.client(), "[%s%%]", function(c)
    return string.format("%%%02x", string.byte(c))
  end))
end

-- The lock with those of its holders that have not expired; without holders if nobody has it.
local function load(name)
  local ok, value = pcall(objclass.getxattr, "lock." .. name)
  if not ok and value ~= -objclass.ENODATA and value ~= -objclass.ENOENT then
    error(value)
  end
  local lock = { holders = {} }
  for line in string.gmatch(ok and value:str() or "", "[^\n]+") do
    local client, cookie, expires, description = string.match(line, "^(%S+) (%S+) (%d+) (.*)$")
    if client == nil then
      lock.type, lock.tag = string.match(line, "^(%S+) (%S+)$")
    elseif expires == "0" or tonumber(expires) > nacre.now() then
      table.insert(lock.holders, { client = client, cookie = cookie, expires = expires, description = description })
    end
  end
  return lock
end

local function shown(lock)
  local lines = { lock.type .. " " .. lock.tag }
  for _, holder in ipairs(lock.holders) do
    table.insert(lines, table.concat({ holder.client, holder.cookie, holder.expires, holder.description }, " "))
  end
  return table.concat(lines, "\n") .. "\n"
end

local function find(lock, client, cookie)
  for i, holder in ipairs(lock.holders) do
    if holder.client == client and holder.cookie == cookie then
      return i
    end
  end
end

local function fields(input, pattern)
  local all = { string.match(input:str(), pattern) }
  if #all == 0 then
    error(-objclass.EINVAL)
  end
  return unpack(all)
end

local function take(input, may_take, may_renew)
  local name, kind, cookie, duration, tag, rest = fields(input, "^(%S+) (%S+) (%S+) (%d+) (%S+)(.*)$")
  duration = tonumber(duration)
  if (kind ~= "exclusive" and kind ~= "shared") or duration > LAST - nacre.now() then
    return -objclass.EINVAL
  end
  local lock, client = load(name), me()
  local at = find(lock, client, cookie)
  if at and not may_renew then
    return -objclass.EEXIST
  elseif not at and not may_take then
    return -objclass.ENOENT
  end
  local others = #lock.holders - (at and 1 or 0)
  if others > 0 and (kind == "exclusive" or lock.type ~= kind) or #lock.holders > 0 and lock.tag ~= tag then
    return -objclass.EBUSY
  end
  local description = string.gsub(string.match(rest, "^ ?(.-)%s*$"), "\n", " ")
  local expires = if duration == 0 then "0" else string.format("%d", nacre.now() + duration)
  lock.type, lock.tag = kind, tag
  lock.holders[at or #lock.holders + 1] = { client = client, cookie = cookie, expires = expires, description = description }
  objclass.setxattr("lock." .. name, shown(lock))
end

local function release(name, client, cookie)
  local lock = load(name)
  local at = find(lock, client, cookie)
  if at == nil then
    return -objclass.ENOENT
  end
  table.remove(lock.holders, at)
  if #lock.holders == 0 then
    nacre.rmxattr("lock." .. name)
  else
    objclass.setxattr("lock." .. name, shown(lock))
  end
end

-- Takes a lock. An object that does not exist is made.
-- input: `NAME exclusive|shared COOKIE MILLISECONDS TAG DESCRIPTION`; 0 milliseconds is for ever; the description is optional
-- output: nothing
-- errors: EBUSY another holder, type or tag is in the way; EEXIST the caller holds it with this cookie; EINVAL input
-- example: lock "leader exclusive c1 30000 - the first"
-- example: lock "leader exclusive c2 30000 -" !EBUSY
-- example: lock "leader exclusive c1 30000 -" !EEXIST
-- example: lock "readers shared a 0 group"
-- example: lock "readers shared b 0 group"
-- example: lock "readers shared c 0 other" !EBUSY
function lock(input)
  return take(input, true, false)
end
objclass.register(lock)

-- Renews a lock that the caller holds: its time counts from now, its type and description are replaced.
-- input: as lock's
-- output: nothing
-- errors: ENOENT the caller does not hold it with this cookie; EBUSY other holders are in the way of the type or tag; EINVAL input
-- example: renew "leader exclusive c1 60000 - the first, still"
-- example: renew "leader exclusive c9 60000 -" !ENOENT
function renew(input)
  return take(input, false, true)
end
objclass.register(renew)

-- Gives back a lock that the caller holds.
-- input: `NAME COOKIE`
-- output: nothing
-- errors: ENOENT the caller does not hold it with this cookie; EINVAL input
-- example: unlock "readers b"
-- example: unlock "readers b" !ENOENT
function unlock(input)
  local name, cookie = fields(input, "^(%S+) (%S+)%s*$")
  return release(name, me(), cookie)
end
objclass.register(unlock)

-- Takes a lock away from a holder that is thought dead. Fence the client as well: it may not know.
-- input: `NAME CLIENT COOKIE`, as `info` shows them
-- output: nothing
-- errors: ENOENT there is no such holder; EINVAL input
-- example: break_lock "readers client.17 a"
function break_lock(input)
  return release(fields(input, "^(%S+) (%S+) (%S+)%s*$"))
end
objclass.register(break_lock)

-- Fails unless the caller holds a lock: the first part of an operation that is bound by it.
-- input: `NAME exclusive|shared COOKIE TAG`
-- output: nothing
-- errors: EBUSY the caller does not hold it so; EINVAL input
-- example: check "leader exclusive c1 -"
-- example: check "leader shared c1 -" !EBUSY
function check(input)
  local name, kind, cookie, tag = fields(input, "^(%S+) (%S+) (%S+) (%S+)%s*$")
  local lock = load(name)
  if lock.type ~= kind or lock.tag ~= tag or not find(lock, me(), cookie) then
    return -objclass.EBUSY
  end
end
objclass.register(check, { read_only = true })

-- Says who holds a lock.
-- input: `NAME`
-- output: a line `TYPE TAG`, then a line `CLIENT COOKIE EXPIRES DESCRIPTION` for each holder; nothing if nobody holds it
-- errors: EINVAL input
-- example: info "leader" -> "exclusive -\nclient.17 c1 1795189960000 the first, still\n"
-- example: info "readers" -> ""
function info(input, output)
  local lock = load(fields(input, "^(%S+)%s*$"))
  if #lock.holders > 0 then
    output:append(shown(lock))
  end
end
objclass.register(info, { read_only = true })

-- Names of the locks that somebody holds.
-- input: nothing
-- output: a line for each, by name
-- errors: ENOENT no object
-- example: list "" -> "leader\n"
function list(input, output)
  local names = {}
  for name in pairs(objclass.getxattrs()) do
    local lock = string.match(name, "^lock%.(.+)$")
    if lock and #load(lock).holders > 0 then
      table.insert(names, lock .. "\n")
    end
  end
  table.sort(names)
  output:append(table.concat(names))
end
objclass.register(list, { read_only = true })
