//! The natives behind `objclass` and `nacre`: Ceph's cls_lua interface, and ours on top of it
//! (MAL-20, MAL-21).
//!
//! Every native charges [`API_COST`] and one unit per KiB moved, calls the object under the rules
//! of the running method ([`Guard`]), and returns its results, or nothing and an error. The object
//! is stored in [`Slot`] for the duration of a call.

use super::Trouble;
use super::buffer::Buffer;
use super::convert::{Refused, data, text, unsigned};
use super::meter::Meter;
use super::natives::hint;
use crate::budget::{API_COST, PAIR_COST};
use crate::guard::{Guard, Rules};
use crate::{Classes, Kind, Object, Request, Stop, errno};
use bytes::Bytes;
use mlua::{FromLuaMulti, IntoLua, IntoLuaMulti, Lua, Table, Value};
use std::sync::Arc;

/// The caller of a class.
pub(super) struct Caller {
    /// Its rules, and the count of writes at the time of the call.
    pub rules: Rules,
    /// The class that it called.
    pub callee: String,
    /// Its memory limit in bytes, and the number of operators counted for it.
    pub bounds: (usize, usize),
}

/// The object, rules and callers of the running call.
pub(super) struct Slot<O> {
    /// Moved in for a call. `None` while a class is only checked.
    pub object: Option<O>,
    pub rules: Rules,
    pub classes: Arc<Classes>,
    pub request: Request,
    /// Callers of the running class, outermost first.
    pub callers: Vec<Caller>,
    pub depth_max: u32,
}

impl<O> Default for Slot<O> {
    fn default() -> Self {
        Self {
            object: None,
            rules: Rules::default(),
            classes: Arc::default(),
            request: Request::default(),
            callers: Vec::new(),
            depth_max: 0,
        }
    }
}

/// Why a native returns no result.
pub(super) enum Fault {
    Stop(Stop),
    Refused(Refused),
}
impl From<Stop> for Fault {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}
impl From<Refused> for Fault {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

/// The environment of a native.
pub(super) struct Cx<'a> {
    pub object: Guard<'a>,
    pub request: &'a Request,
    pub meter: &'a Arc<Meter>,
    /// Instructions for the bytes moved so far.
    moved: u64,
}

/// Bytes whose checksum costs one instruction.
const CHECKSUM_EACH: u64 = 512;

impl Cx<'_> {
    fn buffer(&mut self, bytes: Bytes) -> Buffer {
        self.moved += bytes.len() as u64 / 1024;
        Buffer::new(self.meter, bytes)
    }
    fn data(&mut self, value: &Value, what: &str) -> Result<Bytes, Fault> {
        if self.object.rules.portable && matches!(value, Value::String(_)) {
            self.object.rules.unportable =
                Some("it passes a string where Ceph takes bufferlists only");
        }
        let bytes = data(value, what)?;
        self.moved += bytes.len() as u64 / 1024;
        Ok(bytes)
    }
}

/// A name or key: copied, and looked up by comparing.
fn key_text(moved: &mut u64, value: &Value, what: &str) -> Result<Bytes, Fault> {
    let bytes = text(value, what)?;
    *moved += bytes.len() as u64 / 1024;
    Ok(bytes)
}

/// Whether Ceph has the function too: a portable class may use no others.
#[derive(Clone, Copy, PartialEq)]
enum In {
    Ceph,
    Nacre,
}

/// Adds `N.object`, `N.results`, `N.buffer`, `N.errno` and `N.promise`.
pub(super) fn install<O: Object + Send + 'static>(
    lua: &Lua,
    meter: &Arc<Meter>,
    natives: &Table,
) -> mlua::Result<()> {
    lua.set_app_data(Slot::<O>::default());
    let (table, results) = (lua.create_table()?, lua.create_table()?);
    let api = Api::<O> {
        lua,
        meter,
        table: &table,
        results: &results,
        object: std::marker::PhantomData,
    };
    data_functions(&api)?;
    attribute_functions(&api)?;
    map_functions(&api)?;
    fact_functions(&api)?;
    natives.set("object", table)?;
    natives.set("results", results)?;

    let numbers = lua.create_table()?;
    for (name, number) in errno::NAMES {
        numbers.set(name, number)?;
    }
    natives.set("errno", numbers)?;
    let shared = meter.clone();
    let make = move |lua: &Lua, value: Value| {
        shared.charge(lua, API_COST)?;
        let bytes = match &value {
            Value::Nil => Bytes::new(),
            other => {
                text(other, "bufferlist").map_err(|(_, message)| mlua::Error::runtime(message))?
            }
        };
        shared.charge(lua, bytes.len() as u64 / 1024)?;
        let buffer = Buffer::new(&shared, bytes);
        shared.watch_memory(lua)?;
        Ok(buffer)
    };
    natives.set("buffer", lua.create_function(make.clone())?)?;
    natives.set("as_buffer", lua.create_function(make)?)?;
    natives.set(
        "promise",
        lua.create_function(|lua, read_only: bool| {
            let mut slot = lua
                .app_data_mut::<Slot<O>>()
                .expect("set as the VM was made");
            slot.rules.read_only |= read_only;
            Ok(())
        })?,
    )
}

/// Adds functions to the table of natives.
struct Api<'a, O> {
    lua: &'a Lua,
    meter: &'a Arc<Meter>,
    table: &'a Table,
    /// Number of results of each function.
    results: &'a Table,
    object: std::marker::PhantomData<O>,
}

/// The result of a native in Lua: nothing, one value, or two with the error's position between
/// them. It is pushed directly onto Luau's stack, not through a list of values.
trait Results: Sized {
    const COUNT: u8;
    type Out: IntoLuaMulti;
    fn out(result: Result<Self, Value>) -> Self::Out;
}
impl Results for () {
    const COUNT: u8 = 0;
    type Out = Result<(), Value>;
    fn out(result: Result<Self, Value>) -> Self::Out {
        result
    }
}
impl<T: IntoLua> Results for One<T> {
    const COUNT: u8 = 1;
    type Out = Result<T, Value>;
    fn out(result: Result<Self, Value>) -> Self::Out {
        result.map(|One(value)| value)
    }
}
impl<A: IntoLua, B: IntoLua> Results for (A, B) {
    const COUNT: u8 = 2;
    type Out = (Option<A>, Value, Option<B>);
    fn out(result: Result<Self, Value>) -> Self::Out {
        match result {
            Ok((first, second)) => (Some(first), Value::Nil, Some(second)),
            Err(error) => (None, error, None),
        }
    }
}
/// One result.
struct One<T>(T);

impl<O: Object + Send + 'static> Api<'_, O> {
    fn add<A: FromLuaMulti, R: Results>(
        &self,
        place: In,
        name: &'static str,
        f: impl Fn(&mut Cx<'_>, A) -> Result<R, Fault> + Send + 'static,
    ) -> mlua::Result<()> {
        let meter = self.meter.clone();
        let native = move |lua: &Lua, args: A| {
            meter.charge(lua, API_COST)?;
            let mut slot = lua
                .app_data_mut::<Slot<O>>()
                .expect("set as the VM was made");
            let slot_now = &mut *slot;
            if place == In::Nacre && slot_now.rules.portable {
                slot_now.rules.unportable =
                    Some("it uses a function that Ceph's classes do not have; use --!profile luau");
            }
            let (result, moved) = match &mut slot_now.object {
                Some(object) => {
                    let object = Guard {
                        object,
                        rules: &mut slot_now.rules,
                    };
                    let mut cx = Cx {
                        object,
                        request: &slot_now.request,
                        meter: &meter,
                        moved: 0,
                    };
                    // Luau would store the panic in the slot, which is borrowed now.
                    let result =
                        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| f(&mut cx, args)));
                    (result, cx.moved)
                }
                None => {
                    let none = "there is no object while a class is checked".to_owned();
                    (Ok(Err(Fault::Refused((Kind::Runtime, none)))), 0)
                }
            };
            let unportable = slot_now.rules.unportable;
            drop(slot);
            let result = super::unless_panicked(lua, &meter, result)?;
            if let Some(why) = unportable {
                return meter.kill(
                    lua,
                    Kind::Profile,
                    format!("the class says it is portable, but objclass.{name}: {why}"),
                );
            }
            if moved > 0 {
                meter.charge(lua, moved)?;
            }
            if R::COUNT > 0 {
                meter.watch_memory(lua)?;
            }
            // Directly onto Luau's stack: either the results, or nothing and the error.
            let result = match result {
                Ok(results) => Ok(results),
                Err(fault) => Err(error_value(lua, fault)?),
            };
            Ok(R::out(result))
        };
        self.results.set(name, R::COUNT)?;
        self.table.set(name, self.lua.create_function(native)?)
    }
}

/// The error value that the prelude raises.
pub(super) fn error_value(lua: &Lua, fault: Fault) -> mlua::Result<Value> {
    match fault {
        Fault::Stop(Stop::Errno(number)) => Ok(Value::Number(-f64::from(number))),
        // The host does not have the data: the prelude ends the call.
        Fault::Stop(Stop::Wait) => {
            lua.app_data_mut::<Trouble>()
                .expect("set at the start of every call")
                .wait = true;
            Ok(Value::Boolean(false))
        }
        Fault::Refused((kind, message)) => {
            hint(lua, kind, &message);
            Ok(Value::String(lua.create_string(message)?))
        }
    }
}

fn data_functions<O: Object + Send + 'static>(api: &Api<'_, O>) -> mlua::Result<()> {
    api.add(In::Nacre, "exists", |cx, ()| Ok(One(cx.object.exists()?)))?;
    api.add(In::Ceph, "stat", |cx, ()| {
        let stat = cx.object.stat()?;
        // Seconds, as in Ceph. A size beyond 2^53 is refused, not rounded.
        Ok((whole(stat.size)?, whole(stat.modified_ns / 1_000_000_000)?))
    })?;
    api.add(In::Ceph, "create", |cx, exclusive: Option<bool>| {
        Ok(cx.object.create(exclusive.unwrap_or(false))?)
    })?;
    api.add(In::Ceph, "remove", |cx, ()| Ok(cx.object.remove()?))?;
    api.add(In::Ceph, "read", |cx, (offset, length): (Value, Value)| {
        let (offset, length) = (optional(&offset, "offset")?, optional(&length, "length")?);
        let bytes = cx.object.read(offset, length)?;
        Ok(One(cx.buffer(bytes)))
    })?;
    api.add(
        In::Ceph,
        "write",
        |cx, (offset, length, bytes): (Value, Value, Value)| {
            let (offset, length) = (unsigned(&offset, "offset")?, unsigned(&length, "length")?);
            let bytes = cx.data(&bytes, "data")?;
            let length = usize::try_from(length)
                .ok()
                .filter(|length| *length <= bytes.len());
            let length = length.ok_or(Fault::Stop(Stop::Errno(errno::EINVAL)))?;
            Ok(cx.object.write(offset, bytes.slice(..length))?)
        },
    )?;
    api.add(In::Ceph, "write_full", |cx, bytes: Value| {
        let bytes = cx.data(&bytes, "data")?;
        Ok(cx.object.write_full(bytes)?)
    })?;
    api.add(In::Nacre, "append", |cx, bytes: Value| {
        let bytes = cx.data(&bytes, "data")?;
        Ok(cx.object.append(bytes)?)
    })?;
    api.add(In::Nacre, "truncate", |cx, size: Value| {
        Ok(cx.object.truncate(unsigned(&size, "size")?)?)
    })?;
    api.add(In::Nacre, "zero", |cx, (offset, length): (Value, Value)| {
        Ok(cx
            .object
            .zero(unsigned(&offset, "offset")?, unsigned(&length, "length")?)?)
    })?;
    api.add(
        In::Nacre,
        "checksum",
        |cx, (offset, length): (Value, Value)| {
            let (offset, length) = (optional(&offset, "offset")?, optional(&length, "length")?);
            // Charged before it is executed: one step over a large object takes longer than a whole
            // call may.
            let rest = cx
                .object
                .stat()
                .map_or(0, |stat| stat.size)
                .saturating_sub(offset);
            cx.moved += (if length == 0 { rest } else { rest.min(length) }) / CHECKSUM_EACH;
            if cx.meter.is_beyond(cx.moved) {
                return Ok(One(0.0)); // never seen: what was moved is charged next, and ends the call
            }
            Ok(One(f64::from(cx.object.checksum(offset, length)?)))
        },
    )?;
    api.add(In::Nacre, "snapshots", |cx, ()| {
        cx.object
            .snapshots()?
            .into_iter()
            .map(whole)
            .collect::<Result<Vec<f64>, Fault>>()
            .map(One)
    })?;
    api.add(In::Nacre, "rollback", |cx, snapshot: Value| {
        Ok(cx.object.rollback(unsigned(&snapshot, "snapshot")?)?)
    })
}

fn attribute_functions<O: Object + Send + 'static>(api: &Api<'_, O>) -> mlua::Result<()> {
    api.add(In::Ceph, "getxattr", |cx, name: Value| {
        let bytes = cx
            .object
            .getxattr(&key_text(&mut cx.moved, &name, "name")?)?;
        Ok(One(cx.buffer(bytes)))
    })?;
    api.add(In::Ceph, "getxattrs", |cx, ()| {
        let pairs = cx.object.getxattrs()?;
        Ok(One(buffers(cx, pairs)))
    })?;
    api.add(In::Ceph, "setxattr", |cx, (name, value): (Value, Value)| {
        let value = cx.data(&value, "value")?;
        Ok(cx
            .object
            .setxattr(&key_text(&mut cx.moved, &name, "name")?, value)?)
    })?;
    api.add(In::Nacre, "rmxattr", |cx, name: Value| {
        Ok(cx
            .object
            .rmxattr(&key_text(&mut cx.moved, &name, "name")?)?)
    })
}

fn map_functions<O: Object + Send + 'static>(api: &Api<'_, O>) -> mlua::Result<()> {
    api.add(In::Ceph, "map_get_val", |cx, key: Value| {
        let bytes = cx
            .object
            .map_get_val(&key_text(&mut cx.moved, &key, "key")?)?;
        Ok(One(cx.buffer(bytes)))
    })?;
    api.add(
        In::Ceph,
        "map_get_vals",
        |cx, (after, prefix, max): (Value, Value, Value)| {
            let (pairs, more) = cx.object.map_get_vals(
                &key_text(&mut cx.moved, &after, "after")?,
                &key_text(&mut cx.moved, &prefix, "prefix")?,
                unsigned(&max, "max")?,
            )?;
            Ok((buffers(cx, pairs), more))
        },
    )?;
    api.add(
        In::Ceph,
        "map_get_keys",
        |cx, (after, max): (Value, Value)| {
            let (keys, more) = cx.object.map_get_keys(
                &key_text(&mut cx.moved, &after, "after")?,
                unsigned(&max, "max")?,
            )?;
            cx.moved += keys.len() as u64 * PAIR_COST;
            Ok((Keys(keys), more))
        },
    )?;
    api.add(In::Ceph, "map_set_vals", |cx, pairs: Value| {
        let Value::Table(table) = &pairs else {
            return Err(Fault::Refused((
                Kind::Runtime,
                "a table of keys and bufferlists is needed".to_owned(),
            )));
        };
        let (mut list, mut bytes) = (Vec::new(), 0_usize);
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair.map_err(|error| (Kind::Runtime, super::place::root(&error)))?;
            let (key, value) = (
                key_text(&mut cx.moved, &key, "key")?,
                cx.data(&value, "value")?,
            );
            cx.moved += PAIR_COST;
            // The same string may be the value of every key: the copies made here have not been
            // counted elsewhere.
            bytes += key.len() + value.len();
            if bytes > cx.meter.memory() || cx.meter.is_beyond(cx.moved) {
                let why = "what is set in one call is more than a call may hold; set it in several"
                    .to_owned();
                return Err(Fault::Refused((Kind::Memory, why)));
            }
            list.push((key, value));
        }
        // Ordered by key, not by the table's order.
        list.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Ok(cx.object.map_set_vals(list)?)
    })?;
    api.add(
        In::Ceph,
        "map_set_val",
        |cx, (key, value): (Value, Value)| {
            let value = cx.data(&value, "value")?;
            cx.moved += PAIR_COST;
            Ok(cx
                .object
                .map_set_vals(vec![(key_text(&mut cx.moved, &key, "key")?, value)])?)
        },
    )?;
    api.add(In::Ceph, "map_remove_key", |cx, key: Value| {
        Ok(cx
            .object
            .map_remove_key(&key_text(&mut cx.moved, &key, "key")?)?)
    })?;
    api.add(In::Ceph, "map_clear", |cx, ()| Ok(cx.object.map_clear()?))?;
    api.add(In::Ceph, "map_read_header", |cx, ()| {
        let bytes = cx.object.map_read_header()?;
        Ok(One(cx.buffer(bytes)))
    })?;
    api.add(In::Ceph, "map_write_header", |cx, bytes: Value| {
        let bytes = cx.data(&bytes, "data")?;
        Ok(cx.object.map_write_header(bytes)?)
    })
}

fn fact_functions<O: Object + Send + 'static>(api: &Api<'_, O>) -> mlua::Result<()> {
    api.add(In::Ceph, "current_version", |cx, ()| {
        whole(version(cx)?.number).map(One)
    })?;
    api.add(In::Ceph, "current_subop_num", |cx, ()| {
        Ok(One(cx.request.subop))
    })?;
    api.add(In::Ceph, "current_subop_version", |cx, ()| {
        whole(version(cx)?.number).map(|number| One(format!("{number}.{}", cx.request.subop)))
    })?;
    api.add(In::Nacre, "version", |cx, ()| {
        let version = version(cx)?;
        Ok((whole(version.interval.0)?, whole(version.number)?))
    })?;
    api.add(In::Nacre, "client", |cx, ()| {
        Ok(One(cx.request.client.to_string()))
    })?;
    api.add(In::Nacre, "object_name", |cx, ()| {
        Ok(One(Name(cx.request.object.clone())))
    })?;
    // Milliseconds: nanoseconds since 1970 are beyond 2^53.
    api.add(In::Nacre, "now", |cx, ()| {
        whole(cx.request.now_ns / 1_000_000).map(One)
    })
}

/// Version of an object that may not exist.
fn version(cx: &mut Cx<'_>) -> Result<nacre_types::Version, Fault> {
    match cx.object.stat() {
        Ok(stat) => Ok(stat.version),
        Err(Stop::Errno(errno::ENOENT)) => Ok(nacre_types::Version::NONE),
        Err(stop) => Err(stop.into()),
    }
}

fn optional(value: &Value, what: &str) -> Result<u64, Fault> {
    if value.is_nil() {
        Ok(0)
    } else {
        Ok(unsigned(value, what)?)
    }
}

/// A count, converted for Lua.
fn whole(number: u64) -> Result<f64, Fault> {
    Ok(super::convert::exact(number as f64).map(|_| number as f64)?)
}

fn buffers(cx: &mut Cx<'_>, pairs: Vec<(Bytes, Bytes)>) -> Pairs {
    cx.moved += pairs.len() as u64 * PAIR_COST;
    Pairs(
        pairs
            .into_iter()
            .map(|(key, value)| (key, cx.buffer(value)))
            .collect(),
    )
}

/// Converted to a table from keys to bufferlists.
struct Pairs(Vec<(Bytes, Buffer)>);
impl mlua::IntoLua for Pairs {
    fn into_lua(self, lua: &Lua) -> mlua::Result<Value> {
        let table = lua.create_table_with_capacity(0, self.0.len())?;
        for (key, value) in self.0 {
            table.raw_set(lua.create_string(&key)?, value)?;
        }
        Ok(Value::Table(table))
    }
}

/// Converted to a table from keys to `true`, as in Ceph.
struct Keys(Vec<Bytes>);
impl mlua::IntoLua for Keys {
    fn into_lua(self, lua: &Lua) -> mlua::Result<Value> {
        let table = lua.create_table_with_capacity(0, self.0.len())?;
        for key in self.0 {
            table.raw_set(lua.create_string(&key)?, true)?;
        }
        Ok(Value::Table(table))
    }
}

struct Name(Bytes);
impl mlua::IntoLua for Name {
    fn into_lua(self, lua: &Lua) -> mlua::Result<Value> {
        Ok(Value::String(lua.create_string(&self.0)?))
    }
}
