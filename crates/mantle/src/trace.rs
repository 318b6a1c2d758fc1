//! Recorded load: the text form that `nacre policy test` reads (docs/formats/policy-trace.md).
//!
//! JSON, one object per line. The first line describes the start; each further line is a tick and
//! lists the changes.
//!
//! ```text
//!   {"trace":1,"kind":"ranks","ranks":3,"tick_seconds":10,"capacity":100,"units":[{"name":"a","rank":0,"load":12.5}, …]}
//!   {"loads":{"a":20}}                  {"down":[2]}                  {}
//!
//!   {"trace":1,"kind":"cache","tick_seconds":10}
//!   {"gets":610,"puts":0.4,"new_keys":4,"value_bytes":3600}
//! ```

use crate::metrics::{RANKS_MAX, Rank, UNITS_MAX};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Maximum number of ticks of a trace.
pub const TICKS_MAX: usize = 100_000;

/// A unit at the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TraceUnit {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub rank: Rank,
    /// Its load until a tick changes it.
    pub load: f64,
    /// It never moves.
    pub pinned: bool,
}

/// Changes at a tick of ranks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankTick {
    /// New loads by unit.
    pub loads: BTreeMap<String, f64>,
    /// Ranks that go down; the lowest rank that is up takes over their units.
    pub down: BTreeSet<Rank>,
    /// Ranks that come up.
    pub up: BTreeSet<Rank>,
}

/// A tick of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CacheTick {
    /// Reads per second.
    pub gets: f64,
    /// Writes per second.
    pub puts: f64,
    /// Keys written for the first time.
    pub new_keys: f64,
    /// Bytes of a value.
    pub value_bytes: f64,
}

/// The recorded load.
#[derive(Clone, Debug, PartialEq)]
pub enum Recorded {
    /// Load of units on ranks.
    Ranks {
        /// How many ranks there are.
        ranks: u32,
        /// Load at which a rank is fully busy.
        capacity: f64,
        /// The units.
        units: Vec<TraceUnit>,
        /// The changes by tick.
        ticks: Vec<RankTick>,
    },
    /// Requests to a cache.
    Cache {
        /// The requests by tick.
        ticks: Vec<CacheTick>,
    },
}

/// A trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Seconds between ticks.
    pub tick_seconds: f64,
    /// The recorded load.
    pub recorded: Recorded,
}

/// Why a text is not a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadTrace {
    /// Line number, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for BadTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} of the trace: {}", self.line, self.why)
    }
}
impl std::error::Error for BadTrace {}

impl Trace {
    /// Parses a text.
    ///
    /// # Errors
    /// The first invalid line, and the reason.
    pub fn parse(text: &str) -> Result<Self, BadTrace> {
        let mut lines = text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty());
        let bad = |line: usize, why: String| BadTrace {
            line: line + 1,
            why,
        };
        let (at, head) = lines.next().ok_or_else(|| bad(0, "it is empty".into()))?;
        let mut trace = object(head)
            .and_then(|head| header(&head))
            .map_err(|why| bad(at, why))?;
        for (at, line) in lines {
            object(line)
                .and_then(|fields| trace.push(&fields))
                .map_err(|why| bad(at, why))?;
        }
        if trace.len() == 0 {
            return Err(bad(at, "there is no tick after it".into()));
        }
        Ok(trace)
    }

    /// Number of ticks.
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "a trace that was parsed has a tick"
    )]
    pub fn len(&self) -> usize {
        match &self.recorded {
            Recorded::Ranks { ticks, .. } => ticks.len(),
            Recorded::Cache { ticks } => ticks.len(),
        }
    }

    fn push(&mut self, fields: &Map<String, Value>) -> Result<(), String> {
        if self.len() == TICKS_MAX {
            return Err(format!("{TICKS_MAX} ticks are possible"));
        }
        match &mut self.recorded {
            Recorded::Cache { ticks } => {
                known(fields, &["gets", "puts", "new_keys", "value_bytes"])?;
                ticks.push(CacheTick {
                    gets: number(fields, "gets", None)?,
                    puts: number(fields, "puts", Some(0.0))?,
                    new_keys: number(fields, "new_keys", Some(0.0))?,
                    value_bytes: number(fields, "value_bytes", Some(0.0))?,
                });
            }
            Recorded::Ranks {
                ranks,
                units,
                ticks,
                ..
            } => {
                known(fields, &["loads", "down", "up"])?;
                let mut tick = RankTick {
                    down: rank_set(fields, "down", *ranks)?,
                    up: rank_set(fields, "up", *ranks)?,
                    ..RankTick::default()
                };
                match fields.get("loads") {
                    None => {}
                    Some(Value::Object(loads)) => {
                        for name in loads.keys() {
                            if !units.iter().any(|unit| unit.name == *name) {
                                return Err(format!("unit `{name}` is not in the first line"));
                            }
                            tick.loads.insert(name.clone(), number(loads, name, None)?);
                        }
                    }
                    Some(_) => return Err("`loads` must be an object of numbers by unit".into()),
                }
                ticks.push(tick);
            }
        }
        Ok(())
    }

    /// The text, readable by [`Trace::parse`].
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut lines = Vec::new();
        match &self.recorded {
            Recorded::Cache { ticks } => {
                lines.push(
                    json!({ "trace": 1, "kind": "cache", "tick_seconds": self.tick_seconds }),
                );
                lines.extend(ticks.iter().map(|tick| {
                    json!({ "gets": tick.gets, "puts": tick.puts, "new_keys": tick.new_keys, "value_bytes": tick.value_bytes })
                }));
            }
            Recorded::Ranks {
                ranks,
                capacity,
                units,
                ticks,
            } => {
                let unit = |unit: &TraceUnit| json!({ "name": unit.name, "rank": unit.rank.0, "load": unit.load, "pinned": unit.pinned });
                let units: Vec<Value> = units.iter().map(unit).collect();
                lines.push(json!({ "trace": 1, "kind": "ranks", "ranks": ranks, "tick_seconds": self.tick_seconds,
                    "capacity": capacity, "units": units }));
                lines.extend(ticks.iter().map(|tick| {
                    let mut line = Map::new();
                    if !tick.loads.is_empty() {
                        line.insert("loads".into(), json!(tick.loads));
                    }
                    for (name, ranks) in [("down", &tick.down), ("up", &tick.up)] {
                        if !ranks.is_empty() {
                            line.insert(
                                name.into(),
                                ranks.iter().map(|rank| json!(rank.0)).collect(),
                            );
                        }
                    }
                    Value::Object(line)
                }));
            }
        }
        lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

fn object(line: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(line) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err("a JSON object is needed".into()),
        Err(error) => Err(format!("it is no JSON: {error}")),
    }
}

fn header(head: &Map<String, Value>) -> Result<Trace, String> {
    if head.get("trace") != Some(&json!(1)) {
        return Err("the first line must have \"trace\": 1; `nacre policy trace hot-spot` prints an example".into());
    }
    let tick_seconds = number(head, "tick_seconds", Some(10.0))?;
    if !(0.001..=86_400.0).contains(&tick_seconds) {
        return Err(format!(
            "tick_seconds is {tick_seconds}; a millisecond to a day is possible"
        ));
    }
    let recorded = match head.get("kind").and_then(Value::as_str) {
        Some("cache") => {
            known(head, &["trace", "kind", "tick_seconds"])?;
            Recorded::Cache { ticks: Vec::new() }
        }
        Some("ranks") => {
            known(
                head,
                &[
                    "trace",
                    "kind",
                    "tick_seconds",
                    "ranks",
                    "capacity",
                    "units",
                ],
            )?;
            let count = number(head, "ranks", None)?;
            if !(1.0..=f64::from(RANKS_MAX)).contains(&count) || count.fract() != 0.0 {
                return Err(format!("ranks is {count}; 1 to {RANKS_MAX} are possible"));
            }
            let ranks = count as u32;
            let capacity = number(head, "capacity", Some(100.0))?;
            if capacity <= 0.0 {
                return Err("capacity must be above 0".into());
            }
            Recorded::Ranks {
                ranks,
                capacity,
                units: trace_units(head, ranks)?,
                ticks: Vec::new(),
            }
        }
        _ => return Err("\"kind\" must be \"ranks\" or \"cache\"".into()),
    };
    Ok(Trace {
        tick_seconds,
        recorded,
    })
}

fn trace_units(head: &Map<String, Value>, ranks: u32) -> Result<Vec<TraceUnit>, String> {
    let list = head
        .get("units")
        .and_then(Value::as_array)
        .ok_or("\"units\" must be a list")?;
    if list.len() > UNITS_MAX {
        return Err(format!("{} units; {UNITS_MAX} are possible", list.len()));
    }
    let mut names = BTreeSet::new();
    list.iter()
        .map(|entry| {
            let entry = entry.as_object().ok_or("a unit must be an object")?;
            known(entry, &["name", "rank", "load", "pinned"])?;
            let name = entry
                .get("name")
                .and_then(Value::as_str)
                .ok_or("a unit needs a \"name\"")?
                .to_owned();
            let rank = entry
                .get("rank")
                .map_or(Some(0), Value::as_u64)
                .filter(|rank| *rank < u64::from(ranks));
            let rank =
                rank.ok_or_else(|| format!("unit `{name}` is on a rank that does not exist"))?;
            if !names.insert(name.clone()) {
                return Err(format!("two units are called `{name}`"));
            }
            let pinned = entry
                .get("pinned")
                .and_then(Value::as_bool)
                .unwrap_or(false);
            Ok(TraceUnit {
                load: number(entry, "load", Some(0.0))?,
                rank: Rank(rank as u32),
                pinned,
                name,
            })
        })
        .collect()
}

fn number(fields: &Map<String, Value>, name: &str, default: Option<f64>) -> Result<f64, String> {
    match fields.get(name) {
        None => default.ok_or_else(|| format!("`{name}` is missing")),
        Some(value) => value
            .as_f64()
            .filter(|number| (0.0..=1e15).contains(number))
            .ok_or_else(|| format!("`{name}` is {value}; it must be a number from 0 to 1e15")),
    }
}

fn rank_set(fields: &Map<String, Value>, name: &str, ranks: u32) -> Result<BTreeSet<Rank>, String> {
    let list = match fields.get(name) {
        None => return Ok(BTreeSet::new()),
        Some(list) => list
            .as_array()
            .ok_or_else(|| format!("`{name}` must be a list of ranks"))?,
    };
    list.iter()
        .map(|rank| {
            let known = rank.as_u64().filter(|rank| *rank < u64::from(ranks));
            known
                .map(|rank| Rank(rank as u32))
                .ok_or_else(|| format!("`{name}`: there is no rank {rank}"))
        })
        .collect()
}

/// Refuses unknown fields: a misspelt field would silently mean its default.
fn known(fields: &Map<String, Value>, names: &[&str]) -> Result<(), String> {
    match fields.keys().find(|name| !names.contains(&name.as_str())) {
        Some(name) => Err(format!(
            "there is no field `{name}`; there are {}",
            names.join(", ")
        )),
        None => Ok(()),
    }
}
