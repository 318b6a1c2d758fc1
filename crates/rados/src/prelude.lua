-- Between a class and Ceph's `lua`: what a portable class finds on Nacre's own engine, it finds here. `lua.rs` puts the locals CLASS, METHOD and SOURCE before it.
--
-- * An errno that is raised is returned, and nothing is 0.
-- * What fails otherwise says where, in the output, which comes back also from a call that failed: `!` and the text; `?` for what is not there.
-- * The profile's promises are held here, too: no reading after a write of its own, no output from a call that wrote, no write in a read-only method.
-- * Constants that Ceph has not; `map_set_vals`, which fails there whatever it is given.
local objclass, error, type, table_of = objclass, error, type, pairs
local call, text, whole, compile = pcall, tostring, math.tointeger, load
local named, known, wrote, broken = {}, {}, false, nil
-- A class that is only tried changes nothing.
local read_only = METHOD == nil

for name in string.gmatch("stat read getxattr getxattrs map_get_val map_get_vals map_get_keys map_read_header", "%S+") do
  local read = objclass[name]
  objclass[name] = function(...)
    if wrote then
      broken = broken or "objclass." .. name .. ": it reads after a write of its own, and Ceph shows the old state; read first"
      error(broken, 0)
    end
    return read(...)
  end
end
for name in string.gmatch("create remove write write_full setxattr map_set_val map_remove_key map_clear map_write_header", "%S+") do
  local write = objclass[name]
  objclass[name] = function(...)
    if read_only then
      error(-30, 0)
    end
    write(...)
    wrote = true
  end
end
local set = objclass.map_set_val
objclass.map_set_vals = function(values)
  for key, value in table_of(values) do
    set(key, value)
  end
end
for name, number in pairs({
  ELOOP = 40, EIDRM = 43, ENODATA = 61, ETIME = 62, EMSGSIZE = 90, EOPNOTSUPP = 95, ESTALE = 116, ECANCELED = 125,
}) do
  objclass[name] = objclass[name] or number
end

local register = objclass.register
objclass.register = function(name, f, flags)
  if type(name) == "function" then
    known[name] = f or true
  elseif type(name) == "string" and type(f) == "function" then
    named[name] = { f, flags }
  else
    error("bad argument to 'register' (function, or name and function expected)", 2)
  end
end

local function method()
  local chunk, why = compile(SOURCE, "=" .. CLASS, "t")
  if not chunk then
    error(why, 0)
  end
  chunk()
  if METHOD == nil then
    return nil
  elseif named[METHOD] then
    return named[METHOD][1], named[METHOD][2]
  end
  local f = _G[METHOD]
  if f ~= nil and known[f] then
    return f, known[f]
  end
end

function nacre(input, output)
  local function failed(status, mark, why)
    output:append(mark .. why)
    return status
  end
  local found, f, flags = call(method)
  if METHOD == nil then
    -- Only tried: what is wrong is the answer.
    output:append(found and "" or text(f))
    return 0
  elseif not found then
    return failed(-5, "!", text(f))
  elseif f == nil then
    return failed(-95, "?", "")
  end
  read_only = type(flags) == "table" and (flags.read_only == true or flags.readonly == true)
  local out = bufferlist.new()
  local done, status = call(f, input, out)
  if broken then
    return failed(-1, "!", CLASS .. ": the class says it is portable, but " .. broken)
  elseif not done and not (type(status) == "number" and status < 0) then
    return failed(-5, "!", text(status))
  elseif status == nil then
    status = 0
  end
  if type(status) ~= "number" or not whole(status) then
    return failed(-5, "!", CLASS .. ": a method returns an integer or nothing, not " .. (type(status) == "number" and "this number" or "a " .. type(status)))
  elseif status < 0 then
    return failed(whole(status), "!", "")
  elseif wrote and #out > 0 then
    return failed(-1, "!", CLASS .. ": the class says it is portable, but a call that wrote has output: Ceph drops it")
  end
  output:append(out:str())
  return whole(status)
end
register(nacre)
