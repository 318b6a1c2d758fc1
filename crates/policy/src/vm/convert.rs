//! Values between Rust and Lua, and arguments of the object interface.

use super::buffer::{Buffer, bytes_of};
use crate::Kind;
use crate::value::{INTEGER_MAX, Value};
use bytes::Bytes;
use mlua::{Lua, Value as LuaValue};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum nesting of a table in either direction.
const DEPTH_MAX: u32 = 64;

/// Why a value cannot cross, and the kind of error.
pub(super) type Refused = (Kind, String);

/// Converts a number that is an exactly represented integer.
pub(super) fn exact(number: f64) -> Result<i64, Refused> {
    if number.fract() != 0.0 || !number.is_finite() {
        return Err((Kind::Number, format!("an integer is needed, not {number}")));
    }
    if number.abs() > INTEGER_MAX as f64 {
        return Err((
            Kind::Number,
            format!(
                "{number} is beyond 2^53 and cannot be carried exactly; pass it as a string, see nacre.u64"
            ),
        ));
    }
    Ok(number as i64)
}

/// A number, in either of Luau's representations.
pub(super) const fn number(value: &LuaValue) -> Option<f64> {
    match value {
        LuaValue::Integer(number) => Some(*number as f64),
        LuaValue::Number(number) => Some(*number),
        _ => None,
    }
}

/// An argument that is an offset, a length or a count.
pub(super) fn unsigned(value: &LuaValue, what: &str) -> Result<u64, Refused> {
    let number = number(value).ok_or_else(|| {
        (
            Kind::Runtime,
            format!("{what}: a number is needed, not {}", name_of(value)),
        )
    })?;
    let integer = exact(number).map_err(|(kind, why)| (kind, format!("{what}: {why}")))?;
    u64::try_from(integer).map_err(|_| (Kind::Number, format!("{what}: {integer} is negative")))
}

/// An argument that is a string or a bufferlist.
pub(super) fn text(value: &LuaValue, what: &str) -> Result<Bytes, Refused> {
    bytes_of(value).ok_or_else(|| {
        (
            Kind::Runtime,
            format!(
                "{what}: a string or bufferlist is needed, not {}",
                name_of(value)
            ),
        )
    })
}

/// An argument that is a bufferlist. A string is accepted too: Ceph would refuse it, but it is
/// unambiguous.
pub(super) fn data(value: &LuaValue, what: &str) -> Result<Bytes, Refused> {
    match value {
        LuaValue::String(_) | LuaValue::UserData(_) => text(value, what),
        other => Err((
            Kind::Runtime,
            format!("{what}: a bufferlist is needed, not {}", name_of(other)),
        )),
    }
}

pub(super) fn name_of(value: &LuaValue) -> &'static str {
    match value {
        LuaValue::Nil => "nil",
        LuaValue::UserData(_) => "a bufferlist",
        LuaValue::Table(_) => "a table",
        LuaValue::Function(_) => "a function",
        LuaValue::String(_) => "a string",
        LuaValue::Boolean(_) => "a boolean",
        LuaValue::Integer(_) | LuaValue::Number(_) => "a number",
        _ => "this",
    }
}

/// Converts a value into Lua.
pub(super) fn to_lua(lua: &Lua, value: &Value, depth: u32) -> Result<LuaValue, Refused> {
    if depth == DEPTH_MAX {
        return Err((Kind::Depth, format!("tables nest deeper than {DEPTH_MAX}")));
    }
    let failed = |error: mlua::Error| (Kind::Memory, super::place::root(&error));
    Ok(match value {
        Value::Nil => LuaValue::Nil,
        Value::Bool(value) => LuaValue::Boolean(*value),
        Value::Integer(number) if number.unsigned_abs() > INTEGER_MAX as u64 => {
            return Err((
                Kind::Number,
                format!(
                    "{number} is beyond 2^53 and cannot be carried exactly; pass it as a string, see nacre.u64"
                ),
            ));
        }
        Value::Integer(number) => LuaValue::Number(*number as f64),
        Value::Number(number) => LuaValue::Number(*number),
        Value::Bytes(bytes) => LuaValue::String(lua.create_string(bytes).map_err(failed)?),
        Value::List(list) => {
            let table = lua
                .create_table_with_capacity(list.len(), 0)
                .map_err(failed)?;
            for (at, item) in list.iter().enumerate() {
                table
                    .raw_set(at + 1, to_lua(lua, item, depth + 1)?)
                    .map_err(failed)?;
            }
            LuaValue::Table(table)
        }
        Value::Map(map) => {
            let table = lua
                .create_table_with_capacity(0, map.len())
                .map_err(failed)?;
            for (key, item) in map {
                let key = lua.create_string(key).map_err(failed)?;
                table
                    .raw_set(key, to_lua(lua, item, depth + 1)?)
                    .map_err(failed)?;
            }
            LuaValue::Table(table)
        }
    })
}

/// The rest of the output limit, and the tables already visited.
pub(super) struct Room {
    left: usize,
    seen: BTreeSet<usize>,
}

/// Charge for each further occurrence of a table: it is traversed each time, and one of a million
/// empty slots takes milliseconds.
const AGAIN_COST: usize = 1 << 10;

impl Room {
    pub(super) const fn new(bytes: usize) -> Self {
        Self {
            left: bytes,
            seen: BTreeSet::new(),
        }
    }
    fn take(&mut self, bytes: usize) -> Result<(), Refused> {
        self.left = self
            .left
            .checked_sub(bytes)
            .ok_or((Kind::Output, "the results are too large".to_owned()))?;
        Ok(())
    }
}

/// Converts a value out of Lua.
pub(super) fn from_lua(value: &LuaValue, depth: u32, room: &mut Room) -> Result<Value, Refused> {
    if depth == DEPTH_MAX {
        return Err((
            Kind::Depth,
            format!("tables nest deeper than {DEPTH_MAX}, or contain themselves"),
        ));
    }
    room.take(8)?;
    Ok(match value {
        LuaValue::Nil => Value::Nil,
        LuaValue::Boolean(value) => Value::Bool(*value),
        LuaValue::Integer(number) => Value::Integer(exact(*number as f64)?),
        LuaValue::Number(number) if number.is_finite() && number.fract() == 0.0 => {
            Value::Integer(exact(*number)?)
        }
        LuaValue::Number(number) => Value::Number(*number),
        LuaValue::String(text) => {
            room.take(text.as_bytes().len())?;
            Value::Bytes(Bytes::copy_from_slice(&text.as_bytes()))
        }
        LuaValue::UserData(data) => {
            let bytes = data
                .borrow_mut::<Buffer>()
                .map_err(|_| (Kind::Runtime, "a result of an unknown type".to_owned()))?
                .bytes();
            room.take(bytes.len())?;
            Value::Bytes(bytes)
        }
        LuaValue::Table(table) => from_table(table, depth, room)?,
        other => {
            return Err((
                Kind::Runtime,
                format!("{} cannot be a result", name_of(other)),
            ));
        }
    })
}

fn from_table(table: &mlua::Table, depth: u32, room: &mut Room) -> Result<Value, Refused> {
    if !room.seen.insert(table.to_pointer() as usize) {
        room.take(AGAIN_COST)?;
    }
    let length = table.raw_len();
    let (mut list, mut map) = (Vec::new(), BTreeMap::new());
    for pair in table.pairs::<LuaValue, LuaValue>() {
        let (key, item) = pair.map_err(|error| (Kind::Runtime, super::place::root(&error)))?;
        let number = match &key {
            LuaValue::String(text) => {
                let key = Bytes::copy_from_slice(&text.as_bytes());
                room.take(key.len())?;
                map.insert(key, from_lua(&item, depth + 1, room)?);
                continue;
            }
            LuaValue::Integer(number) => *number as f64,
            LuaValue::Number(number) => *number,
            // Their order is that of addresses, and differs between runs.
            other => {
                return Err((
                    Kind::Runtime,
                    format!(
                        "a key of a result is {}: only strings and integers can be",
                        name_of(other)
                    ),
                ));
            }
        };
        list.push((exact(number)?, from_lua(&item, depth + 1, room)?));
    }
    list.sort_by_key(|(at, _)| *at);
    let dense = list.len() == length
        && list
            .iter()
            .zip(1..)
            .all(|((at, _), expected)| *at == expected);
    if map.is_empty() && dense {
        return Ok(Value::List(
            list.into_iter().map(|(_, item)| item).collect(),
        ));
    }
    for (at, item) in list {
        if map.insert(Bytes::from(at.to_string()), item).is_some() {
            return Err((
                Kind::Runtime,
                format!("a result has both the key {at} and the key \"{at}\""),
            ));
        }
    }
    Ok(Value::Map(map))
}
