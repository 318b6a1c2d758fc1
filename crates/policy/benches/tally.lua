-- The Rust class `tally` of the OSD, line for line: what `nacre bench call` and this crate's bench compare with Rust.
function add(input, output)
  local key = input:str()
  local known, value = pcall(objclass.map_get_val, key)
  local after = bufferlist.new()
  after:append(tostring((known and tonumber(value:str()) or 0) + 1))
  objclass.map_set_val(key, after)
  output:append(after:str())
end
function get(input, output)
  local known, value = pcall(objclass.map_get_val, input:str())
  output:append(known and value:str() or "0")
end
objclass.register(add)
objclass.register("get", get, {read_only = true})
