//! Natives that the prelude needs in every VM: meter, errors, random numbers, log, exact integers.

use super::meter::Meter;
use super::{Trouble, cache, convert, errno_message, place};
use crate::budget::{API_COST, SOURCE_MAX};
use crate::{Kind, ScriptError, Severity};
use mlua::{IntoLua, Lua, MultiValue, Table, Value};
use nacre_types::SplitMix64;
use std::sync::Arc;

/// The table `N` of the prelude.
pub(super) fn table(lua: &Lua, meter: &Arc<Meter>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let shared = meter.clone();
    table.set(
        "charge",
        lua.create_function(move |lua, units: f64| shared.charge(lua, units as u64))?,
    )?;
    let shared = meter.clone();
    table.set(
        "weigh",
        lua.create_function(move |_, weight: f64| {
            shared.set_weight(weight as u64);
            Ok(())
        })?,
    )?;
    let shared = meter.clone();
    table.set(
        "kill_memory",
        lua.create_function(move |lua, ()| shared.out_of_memory::<()>(lua))?,
    )?;
    table.set(
        "text",
        lua.create_function(|_, value: Value| Ok(text_of(&value)))?,
    )?;
    let shared = meter.clone();
    table.set(
        "failed",
        lua.create_function(
            move |lua, (number, text): (Option<f64>, Option<mlua::LuaString>)| {
                shared.make_room(lua);
                failed(lua, number, text.map(|text| text.to_string_lossy()));
                Ok(())
            },
        )?,
    )?;
    table.set(
        "number",
        lua.create_function(|lua, message: String| {
            hint(lua, Kind::Number, &message);
            Ok(message)
        })?,
    )?;
    let shared = meter.clone();
    table.set(
        "abandon",
        lua.create_function(move |lua, ()| {
            shared.kill::<()>(lua, Kind::Runtime, "waiting for the object".to_owned())
        })?,
    )?;
    let shared = meter.clone();
    table.set(
        "missing",
        lua.create_function(move |lua, name: String| {
            let what = crate::error::NOT_REGISTERED;
            shared.kill::<()>(lua, Kind::Missing, format!("`{name}` {what}"))
        })?,
    )?;
    table.set(
        "random",
        lua.create_function(|lua, ()| {
            let mut trouble = lua
                .app_data_mut::<Trouble>()
                .expect("set at the start of every call");
            Ok(trouble.random.unit())
        })?,
    )?;
    table.set(
        "randomseed",
        lua.create_function(|lua, seed: f64| {
            lua.app_data_mut::<Trouble>()
                .expect("set at the start of every call")
                .random = SplitMix64(seed.to_bits());
            Ok(())
        })?,
    )?;
    let shared = meter.clone();
    table.set(
        "log",
        lua.create_function(move |lua, (level, text): (f64, mlua::LuaString)| {
            log(lua, &shared, level, &text)
        })?,
    )?;
    let shared = meter.clone();
    table.set(
        "load",
        lua.create_function(
            move |lua, (text, name): (mlua::LuaString, Option<String>)| {
                let text = text.as_bytes();
                shared.charge(lua, name.as_ref().map_or(0, String::len) as u64 / 256)?;
                // Compiling takes about 60 ns per byte.
                shared.charge(lua, API_COST + text.len() as u64)?;
                if text.len() <= SOURCE_MAX {
                    shared.fit(lua, crate::text::scan(&text))?;
                }
                let name = name
                    .as_deref()
                    .map_or("load", |name| name.trim_start_matches(['=', '@', '[']));
                let name = name.get(..name.len().min(64)).unwrap_or("load");
                match cache::compile(lua, name, &text) {
                    Ok(function) => (function,).into_values(lua),
                    Err(error) if error.kind == Kind::Memory => shared.out_of_memory(lua),
                    Err(error) => (Value::Nil, error.to_string()).into_values(lua),
                }
            },
        )?,
    )?;
    table.set("u64", exact_integers(lua)?)?;
    table.set("regimes", super::regimes::table(lua, meter)?)?;
    Ok(table)
}

/// Shorthand for results of several values.
trait IntoValues {
    fn into_values(self, lua: &Lua) -> mlua::Result<MultiValue>;
}
impl<T: mlua::IntoLuaMulti> IntoValues for T {
    fn into_values(self, lua: &Lua) -> mlua::Result<MultiValue> {
        self.into_lua_multi(lua)
    }
}

/// The text of one of our values that a script may see.
fn text_of(value: &Value) -> String {
    match value {
        Value::Error(error) => place::root(error),
        _ => "bufferlist".to_owned(),
    }
}

/// Stores the kind of one of our messages, in case it is not caught.
pub(super) fn hint(lua: &Lua, kind: Kind, message: &str) {
    lua.app_data_mut::<Trouble>()
        .expect("set at the start of every call")
        .hint = Some((kind, message.to_owned()));
}

/// The outermost error, while its stack still exists.
fn failed(lua: &Lua, number: Option<f64>, text: Option<String>) {
    let (mut script, mut line, stack) = place::here(lua);
    let raised = place::is_raised(lua);
    let mut trouble = lua
        .app_data_mut::<Trouble>()
        .expect("set at the start of every call");
    let (kind, message) = match (number, text) {
        (Some(number), _)
            if number < 0.0 && number.fract() == 0.0 && number > f64::from(i32::MIN) =>
        {
            let errno = -(number as i32);
            (Kind::Errno(errno), errno_message(errno))
        }
        (Some(number), _) => (Kind::Runtime, number.to_string()),
        (None, text) => {
            let mut message = text.unwrap_or_default();
            if let Some((at, number, rest)) = place::position(&message)
                && (at == place::PRELUDE
                    || stack
                        .iter()
                        .any(|frame| frame.starts_with(&format!("{at}:"))))
            {
                let rest = rest.to_owned();
                if at != place::PRELUDE {
                    (script, line) = (at, Some(number));
                }
                message = rest;
            }
            let kind = match &trouble.hint {
                Some((kind, hint)) if *hint == message => *kind,
                _ => place::kind_of(&message),
            };
            (kind, place::shorten(&message))
        }
    };
    trouble.failed = Some(ScriptError {
        kind,
        script,
        line,
        message,
        raised,
        stack,
    });
}

fn log(lua: &Lua, meter: &Meter, level: f64, text: &mlua::LuaString) -> mlua::Result<MultiValue> {
    let text = text.to_string_lossy();
    meter.charge(lua, API_COST + text.len() as u64 / 1024)?;
    let severity = match level {
        level if level <= 0.0 => Severity::Error,
        level if level <= 5.0 => Severity::Warn,
        level if level <= 20.0 => Severity::Info,
        _ => Severity::Debug,
    };
    log_line(lua, meter, severity, text)?;
    ().into_values(lua)
}

/// Appends a log line, or ends a call that exceeds the log limit.
pub(super) fn log_line(
    lua: &Lua,
    meter: &Meter,
    severity: Severity,
    line: String,
) -> mlua::Result<()> {
    let mut trouble = lua
        .app_data_mut::<Trouble>()
        .expect("set at the start of every call");
    trouble.log_bytes += line.len() + 16;
    if trouble.log_bytes > trouble.output_max {
        let message = format!(
            "the log of one call is bounded to {} bytes",
            trouble.output_max
        );
        drop(trouble);
        return meter.kill(lua, Kind::Output, message);
    }
    trouble.log.push((severity, line));
    Ok(())
}

// ─── nacre.u64 ──────────────────────────────────────────────────────────────────────────

/// An unsigned 64-bit integer as a script stores it: 8 bytes, big-endian, so that `<` and `==` on
/// strings order them.
fn u64_of(value: &Value) -> Result<u64, convert::Refused> {
    match value {
        Value::String(text) => {
            let bytes = text.as_bytes();
            <[u8; 8]>::try_from(&*bytes)
                .map(u64::from_be_bytes)
                .map_err(|_| {
                    (
                        Kind::Number,
                        format!(
                            "a u64 has 8 bytes, not {}: make one with nacre.u64.from",
                            bytes.len()
                        ),
                    )
                })
        }
        other => convert::unsigned(other, "u64"),
    }
}

/// One function of `nacre.u64`: an error first, then the result.
fn exact_function<R: IntoLua + 'static>(
    lua: &Lua,
    f: impl Fn(&Lua, &Value, &Value) -> Result<R, convert::Refused> + Send + 'static,
) -> mlua::Result<mlua::Function> {
    lua.create_function(move |lua, (a, b): (Value, Value)| {
        // A text is copied before it is parsed.
        let length = a.as_string().map_or(0, |text| text.as_bytes().len() as u64);
        if length > 1024 {
            super::buffer::meter_of(lua).charge(lua, length / 1024)?;
        }
        match f(lua, &a, &b) {
            Ok(value) => (Value::Nil, value).into_values(lua),
            Err((kind, message)) => {
                hint(lua, kind, &message);
                (message,).into_values(lua)
            }
        }
    })
}

struct Carried(u64);
impl IntoLua for Carried {
    fn into_lua(self, lua: &Lua) -> mlua::Result<Value> {
        Ok(Value::String(lua.create_string(self.0.to_be_bytes())?))
    }
}

fn exact_integers(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    // from(number or decimal text)
    table.set(
        "from",
        exact_function(lua, |_, a, _| match a {
            Value::String(text) => {
                let text = text.to_string_lossy();
                text.parse().map(Carried).map_err(|_| {
                    (
                        Kind::Number,
                        format!(
                            "`{}` is no decimal number below 2^64",
                            place::shorten(&text)
                        ),
                    )
                })
            }
            other => convert::unsigned(other, "u64").map(Carried),
        })?,
    )?;
    let overflow = |what: &str| (Kind::Number, format!("{what} leaves the range of 64 bits"));
    table.set(
        "add",
        exact_function(lua, move |_, a, b| {
            u64_of(a)?
                .checked_add(u64_of(b)?)
                .map(Carried)
                .ok_or_else(|| overflow("the sum"))
        })?,
    )?;
    table.set(
        "sub",
        exact_function(lua, move |_, a, b| {
            u64_of(a)?
                .checked_sub(u64_of(b)?)
                .map(Carried)
                .ok_or_else(|| overflow("the difference"))
        })?,
    )?;
    // -1, 0, 1
    table.set(
        "cmp",
        exact_function(lua, |_, a, b| Ok(u64_of(a)?.cmp(&u64_of(b)?) as i64))?,
    )?;
    table.set(
        "tostring",
        exact_function(lua, |_, a, _| Ok(u64_of(a)?.to_string()))?,
    )?;
    table.set(
        "tonumber",
        exact_function(lua, |_, a, _| {
            let value = u64_of(a)?;
            convert::exact(value as f64).map(|_| value as f64)
        })?,
    )?;
    // Little-endian, as most formats store them.
    table.set(
        "pack",
        exact_function(lua, |lua, a, _| {
            let bytes = u64_of(a)?.to_le_bytes();
            lua.create_string(bytes)
                .map_err(|error| (Kind::Memory, place::root(&error)))
        })?,
    )?;
    // unpack(text, position from 1)
    table.set(
        "unpack",
        exact_function(lua, |_, a, b| {
            let text = convert::text(a, "u64.unpack")?;
            let at = if b.is_nil() {
                1
            } else {
                convert::unsigned(b, "position")?
            };
            let start = usize::try_from(at).ok().and_then(|at| at.checked_sub(1));
            let bytes = start.and_then(|start| text.get(start..)?.first_chunk::<8>());
            bytes
                .map(|bytes| Carried(u64::from_le_bytes(*bytes)))
                .ok_or((Kind::Number, "fewer than 8 bytes there".to_owned()))
        })?,
    )?;
    Ok(table)
}
