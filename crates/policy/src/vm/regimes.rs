//! `nacre.kmeans`, `nacre.regimes`, `nacre.regime`: K-means for scripts, charged to their budget
//! (UNI-06).
//!
//! Each returns an error first; the prelude raises it at the line of the call.

use super::meter::{Ending, Meter};
use super::{convert, place};
use crate::Kind;
use crate::budget::{API_COST, PAIR_COST};
use crate::regimes::{self, POINTS_MAX, Refused, STATE_BYTES, Sensitivity, Stream};
use mlua::{IntoLuaMulti, Lua, MultiValue, Table, Value};
use std::sync::Arc;

/// The natives.
pub(super) fn table(lua: &Lua, meter: &Arc<Meter>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let shared = meter.clone();
    table.set(
        "kmeans",
        lua.create_function(move |lua, (points, k, seed): (Value, Value, Value)| {
            let (points, k, seed) = match read(lua, &shared, &points, &k, &seed)? {
                Ok(arguments) => arguments,
                Err(refused) => return raised(lua, refused),
            };
            let clusters = regimes::kmeans(&points, k, seed, &mut |units| {
                shared.charge(lua, units).is_ok()
            });
            let clusters = match clusters {
                Ok(clusters) => clusters,
                Err(why) => return refused(lua, &why),
            };
            let numbers: Vec<usize> = clusters.assigned.iter().map(|at| at + 1).collect();
            (Value::Nil, numbers, clusters.centres, clusters.inertia).into_lua_multi(lua)
        })?,
    )?;
    let shared = meter.clone();
    table.set(
        "regimes",
        lua.create_function(move |lua, (points, k, seed): (Value, Value, Value)| {
            let (points, k, seed) = match read(lua, &shared, &points, &k, &seed)? {
                Ok(arguments) => arguments,
                Err(refused) => return raised(lua, refused),
            };
            if points.iter().any(|point| point.len() != 2) {
                return raised(
                    lua,
                    (
                        Kind::Runtime,
                        "nacre.regimes: a point is {time, rate}".to_owned(),
                    ),
                );
            }
            let pairs: Vec<(f64, f64)> = points.iter().map(|point| (point[0], point[1])).collect();
            let found = match regimes::regimes(&pairs, k, seed, &mut |units| {
                shared.charge(lua, units).is_ok()
            }) {
                Ok(found) => found,
                Err(why) => return refused(lua, &why),
            };
            let list = lua.create_table()?;
            for regime in found {
                let entry = lua.create_table()?;
                entry.raw_set("first", regime.first + 1)?;
                entry.raw_set("start", regime.start)?;
                entry.raw_set("rate", regime.rate)?;
                list.raw_push(entry)?;
            }
            (Value::Nil, list).into_lua_multi(lua)
        })?,
    )?;
    let shared = meter.clone();
    table.set(
        "regime",
        lua.create_function(
            move |lua, (state, time, rate, distance, confirm): (Value, Value, Value, Value, Value)| {
                shared.charge(lua, API_COST)?;
                match regime(&state, &time, &rate, &distance, &confirm) {
                    Err(refused) => raised(lua, refused),
                    Ok(stream) => {
                        let entry = lua.create_table()?;
                        entry.raw_set("number", stream.regime)?;
                        entry.raw_set("start", stream.start)?;
                        entry.raw_set("rate", stream.rate)?;
                        entry.raw_set("first_rate", stream.first_rate)?;
                        (Value::Nil, lua.create_string(stream.to_bytes())?, entry).into_lua_multi(lua)
                    }
                }
            },
        )?,
    )?;
    Ok(table)
}

fn raised(lua: &Lua, (kind, message): convert::Refused) -> mlua::Result<MultiValue> {
    super::natives::hint(lua, kind, &message);
    message.into_lua_multi(lua)
}

fn refused(lua: &Lua, why: &Refused) -> mlua::Result<MultiValue> {
    match why {
        Refused::Argument(why) => raised(lua, (Kind::Runtime, format!("nacre.kmeans: {why}"))),
        // The meter has already ended the call and stored the reason.
        Refused::Unpaid => Ending::raise(),
    }
}

type Arguments = (Vec<Vec<f64>>, usize, u64);

fn read(
    lua: &Lua,
    meter: &Meter,
    points: &Value,
    k: &Value,
    seed: &Value,
) -> mlua::Result<Result<Arguments, convert::Refused>> {
    let Value::Table(list) = points else {
        return Ok(Err((
            Kind::Runtime,
            "a list of points is needed".to_owned(),
        )));
    };
    let length = list.raw_len();
    if length > POINTS_MAX {
        return Ok(Err((
            Kind::Runtime,
            format!("{length} points: {POINTS_MAX} are possible"),
        )));
    }
    meter.charge(lua, API_COST + PAIR_COST * length as u64)?;
    let mut vectors = Vec::with_capacity(length);
    for at in 1..=length {
        let Value::Table(point) = list.raw_get::<Value>(at)? else {
            return Ok(Err((
                Kind::Runtime,
                format!("point {at} is not a table of numbers"),
            )));
        };
        let mut vector = Vec::new();
        for d in 1..=point.raw_len().min(regimes::DIMENSIONS_MAX + 1) {
            match convert::number(&point.raw_get::<Value>(d)?) {
                Some(number) => vector.push(number),
                None => {
                    return Ok(Err((
                        Kind::Runtime,
                        format!("coordinate {d} of point {at} is not a number"),
                    )));
                }
            }
        }
        vectors.push(vector);
    }
    let k = if k.is_nil() {
        Ok(4)
    } else {
        convert::unsigned(k, "the number of clusters")
    };
    let seed = if seed.is_nil() {
        Ok(0)
    } else {
        convert::unsigned(seed, "the seed")
    };
    Ok(match (k, seed) {
        (Ok(k), Ok(seed)) => Ok((vectors, usize::try_from(k).unwrap_or(usize::MAX), seed)),
        (Err(why), _) | (_, Err(why)) => Err(why),
    })
}

fn regime(
    state: &Value,
    time: &Value,
    rate: &Value,
    distance: &Value,
    confirm: &Value,
) -> Result<Stream, convert::Refused> {
    let need = |value: &Value, what: &str| {
        convert::number(value)
            .filter(|number| number.is_finite())
            .ok_or((
                Kind::Number,
                format!("nacre.regime: {what} must be a finite number"),
            ))
    };
    let mut stream = match state {
        Value::Nil => Stream::default(),
        other => {
            let bytes = convert::text(other, "the state of nacre.regime")?;
            Stream::from_bytes(&bytes).ok_or_else(|| {
                let message =
                    format!("nacre.regime: the state is none of {STATE_BYTES} bytes that it gave back; start with nil");
                (Kind::Runtime, place::shorten(&message))
            })?
        }
    };
    let mut how = Sensitivity::default();
    if !distance.is_nil() {
        how.distance = need(distance, "the distance")?;
    }
    if !confirm.is_nil() {
        how.confirm = u32::try_from(convert::unsigned(
            confirm,
            "the number of points to confirm",
        )?)
        .unwrap_or(u32::MAX);
    }
    stream.push(need(time, "the time")?, need(rate, "the rate")?, how);
    Ok(stream)
}
