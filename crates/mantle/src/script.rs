//! Runs a policy once: passes facts to Lua, and returns what it answered. It does not check the
//! answer: see [`plan`](crate::plan).
//!
//! Ranks are counted from 0, as in CephFS and its balancers. A script that uses `MDSs`, the paper's
//! word for `mds`, is one of the paper's: it counts from 1. A line `--!ranks 0` or `--!ranks 1` in
//! the head overrides this.

use crate::metrics::{
    CACHE_FIELDS, CEPH_FIELDS, FIELDS, Facts, Metrics, Rank, RankMetrics, Series,
};
use bytes::Bytes;
use nacre_policy::{Budget, Chunk, Patience, Ran, Run, ScriptError, Severity, Value, Vm};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Runs policies.
#[derive(Debug)]
pub struct Runner {
    vm: Vm,
    driver: Chunk,
}

/// How many units move, in the paper's terms.
#[derive(Clone, Debug, PartialEq)]
pub enum Selector {
    /// A strategy's name.
    Named(String),
    /// Heaviest first, for this fraction of the load asked for. NaN if the value is not a number.
    Part(f64),
}

/// The answer of a script. Numbers may have any value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Said {
    /// Loads by rank, as the script weighs them.
    pub loads: BTreeMap<Rank, f64>,
    /// The load that each rank shall receive: rank and amount, or the value found in place of a
    /// number.
    pub asked: Vec<(Result<f64, String>, Result<f64, String>)>,
    /// Strategies for choosing units; none: the mechanism's default.
    pub howmuch: Option<Vec<Selector>>,
    /// Units placed by name.
    pub placed: Vec<(String, Result<f64, String>)>,
    /// Weight of each unit by `metaload`.
    pub weights: Option<Vec<f64>>,
    /// Their sum.
    pub meta_load: Option<f64>,
    /// Name of the mode.
    pub mode: Option<String>,
    /// The state that it wants to find at the next tick.
    pub state: Option<Value>,
    /// Number of keys that a cache keeps.
    pub keep: Option<Result<f64, String>>,
}

/// A run's outcome.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The answer, or why the script failed.
    pub said: Result<Said, ScriptError>,
    /// Lines of `print` and `BAL_LOG`.
    pub log: Vec<(Severity, String)>,
    /// Instructions used.
    pub instructions: u64,
}

/// The inputs of a run.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The rank that asks.
    pub whoami: Rank,
    /// The tick's number.
    pub tick: u64,
    /// Seconds on the host's clock.
    pub seconds: f64,
    /// Measurements.
    pub facts: &'a Facts,
    /// Earlier measurements.
    pub series: &'a Series,
    /// The state that the last run saved.
    pub state: Option<&'a Value>,
    /// Bounds.
    pub budget: &'a Budget,
}

impl Default for Runner {
    fn default() -> Self {
        Self {
            vm: Vm::new(4),
            driver: Chunk::new("[nacre.mantle]", include_str!("driver.luau")),
        }
    }
}

impl Runner {
    /// Checks whether a source compiles.
    ///
    /// # Errors
    /// Line and reason.
    pub fn check(&mut self, chunk: &Chunk) -> Result<(), ScriptError> {
        self.vm.check(chunk)
    }

    /// Gives policies a clock. Call it once.
    pub fn set_patience(&self, patience: Arc<dyn Patience>) {
        self.vm.set_patience(patience);
    }

    /// Runs a policy.
    pub fn ask(&mut self, chunk: &Chunk, question: &Question<'_>) -> Answer {
        let base = base(chunk.text());
        let facts = facts(question, base, mentions(chunk.text(), b"series"));
        let seed = question.tick ^ (u64::from(question.whoami.0) << 32);
        let run = Run {
            chunk,
            entry: None,
            globals: &[],
            args: &[facts],
            seed,
            budget: question.budget,
        };
        let Ran {
            result,
            log,
            instructions,
            ..
        } = self.vm.drive(&self.driver, &run);
        let said = result.map(|values| read(values.into_iter().next(), question.facts));
        Answer {
            said,
            log,
            instructions,
        }
    }
}

/// Number of the first rank from the script's point of view.
fn base(text: &[u8]) -> i64 {
    let head = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let said = head
        .take_while(|line| line.is_empty() || line.starts_with(b"--"))
        .find_map(|line| line.strip_prefix(b"--!ranks"));
    match said.map(<[u8]>::trim_ascii) {
        Some(b"1") => 1,
        Some(b"0") => 0,
        _ => i64::from(mentions(text, b"MDSs")),
    }
}

/// Whether a word occurs in a text, outside line comments.
fn mentions(text: &[u8], word: &[u8]) -> bool {
    text.split(|byte| *byte == b'\n').any(|line| {
        let end = line
            .windows(2)
            .position(|pair| pair == b"--")
            .unwrap_or(line.len());
        let part_of_name =
            |at: Option<&u8>| at.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        line[..end]
            .windows(word.len())
            .enumerate()
            .any(|(at, found)| {
                found == word
                    && !part_of_name(at.checked_sub(1).and_then(|at| line.get(at)))
                    && !part_of_name(line[..end].get(at + word.len()))
            })
    })
}

fn map(pairs: impl IntoIterator<Item = (String, Value)>) -> Value {
    Value::Map(
        pairs
            .into_iter()
            .map(|(key, value)| (Bytes::from(key), value))
            .collect(),
    )
}
fn number(value: f64) -> Value {
    Value::Number(value)
}

fn facts(question: &Question<'_>, base: i64, with_series: bool) -> Value {
    let mut all = vec![
        ("base".to_owned(), Value::Integer(base)),
        (
            "whoami".to_owned(),
            Value::Integer(i64::from(question.whoami.0)),
        ),
        ("tick".to_owned(), number(question.tick as f64)),
        ("now".to_owned(), number(question.seconds)),
        (
            "state".to_owned(),
            question.state.cloned().unwrap_or(Value::Nil),
        ),
        ("units".to_owned(), Value::List(Vec::new())),
        (
            "series".to_owned(),
            if with_series {
                series(question)
            } else {
                map([])
            },
        ),
    ];
    match question.facts {
        Facts::Cache(metrics) => {
            let fields = CACHE_FIELDS.iter().zip(metrics.fields());
            all.push((
                "cache".to_owned(),
                map(fields.map(|(name, value)| ((*name).to_owned(), number(value)))),
            ));
        }
        Facts::Cluster(metrics) => {
            let ranks = metrics
                .ranks
                .iter()
                .map(|(rank, metrics)| rank_facts(*rank, metrics))
                .collect();
            all.push(("ranks".to_owned(), Value::List(ranks)));
            all.push(("units".to_owned(), Value::List(units(metrics))));
        }
    }
    map(all)
}

fn rank_facts(rank: Rank, metrics: &RankMetrics) -> Value {
    let ours = FIELDS.iter().zip(metrics.fields());
    let ceph = CEPH_FIELDS.iter().zip(metrics.fields());
    // A service's own metric does not hide a standard one.
    let extra = metrics
        .extra
        .iter()
        .map(|(name, value)| (name.clone(), number(*value)));
    let known = ours
        .chain(ceph)
        .map(|(name, value)| ((*name).to_owned(), number(value)));
    map(extra
        .chain(known)
        .chain([("rank".to_owned(), Value::Integer(i64::from(rank.0)))]))
}

fn units(metrics: &Metrics) -> Vec<Value> {
    let unit = |unit: &crate::Unit| {
        let counters = unit
            .counters
            .iter()
            .map(|(name, value)| (name.clone(), number(*value)));
        map(counters.chain([
            (
                "name".to_owned(),
                Value::Bytes(Bytes::copy_from_slice(unit.name.as_bytes())),
            ),
            ("load".to_owned(), number(unit.load)),
            ("pinned".to_owned(), Value::Bool(unit.pinned)),
        ]))
    };
    metrics.units.iter().map(unit).collect()
}

fn series(question: &Question<'_>) -> Value {
    let names: &[&str] = match question.facts {
        Facts::Cluster(_) => &FIELDS,
        Facts::Cache(_) => &CACHE_FIELDS,
    };
    let ranks: Vec<Rank> = match question.facts {
        Facts::Cluster(metrics) => metrics.ranks.keys().copied().collect(),
        Facts::Cache(_) => vec![Rank(0)],
    };
    map(ranks.into_iter().map(|rank| {
        let of = names.iter().enumerate().map(|(field, name)| {
            let values = question.series.values(rank, field).map(number).collect();
            ((*name).to_owned(), Value::List(values))
        });
        (rank.to_string(), map(of))
    }))
}

// ─── what came back ─────────────────────────────────────────────────────────────────────

type Fields = BTreeMap<Bytes, Value>;

fn field(fields: &mut Fields, name: &str) -> Option<Value> {
    fields.remove(name.as_bytes())
}
fn list(value: Option<Value>) -> Vec<Value> {
    match value {
        Some(Value::List(list)) => list,
        _ => Vec::new(),
    }
}
fn text(value: Option<Value>) -> Option<String> {
    match value {
        Some(Value::Bytes(bytes)) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        _ => None,
    }
}
/// A number as the driver encodes it, or the value found in its place.
fn exact(value: Option<Value>) -> Result<f64, String> {
    match value {
        Some(Value::Bytes(bytes)) => match <[u8; 8]>::try_from(&*bytes) {
            Ok(bits) => Ok(f64::from_le_bytes(bits)),
            Err(_) => Err(String::from_utf8_lossy(&bytes).into_owned()),
        },
        _ => Err("nothing".into()),
    }
}
fn entries(value: Option<Value>) -> impl Iterator<Item = Fields> {
    list(value).into_iter().filter_map(|entry| match entry {
        Value::Map(fields) => Some(fields),
        _ => None,
    })
}

fn read(value: Option<Value>, facts: &Facts) -> Said {
    let Some(Value::Map(mut fields)) = value else {
        return Said::default();
    };
    let fields = &mut fields;
    let mut said = Said {
        state: field(fields, "state").filter(|state| *state != Value::Nil),
        mode: text(field(fields, "mode")),
        keep: field(fields, "keep").map(|keep| exact(Some(keep))),
        ..Said::default()
    };
    let Facts::Cluster(metrics) = facts else {
        return said;
    };
    let loads = list(field(fields, "loads"))
        .into_iter()
        .map(|load| exact(Some(load)).unwrap_or(f64::NAN));
    said.loads = metrics.ranks.keys().copied().zip(loads).collect();
    said.asked = entries(field(fields, "asked"))
        .map(|mut entry| {
            (
                exact(field(&mut entry, "rank")),
                exact(field(&mut entry, "amount")),
            )
        })
        .collect();
    said.howmuch = field(fields, "howmuch").map(|howmuch| {
        entries(Some(howmuch))
            .map(|mut entry| match text(field(&mut entry, "name")) {
                Some(name) => Selector::Named(name),
                None => Selector::Part(exact(field(&mut entry, "part")).unwrap_or(f64::NAN)),
            })
            .collect()
    });
    said.placed = entries(field(fields, "placed"))
        .map(|mut entry| {
            (
                text(field(&mut entry, "unit")).unwrap_or_default(),
                exact(field(&mut entry, "rank")),
            )
        })
        .collect();
    said.weights = field(fields, "weights").map(|weights| {
        list(Some(weights))
            .into_iter()
            .map(|weight| exact(Some(weight)).unwrap_or(f64::NAN))
            .collect()
    });
    said.meta_load = field(fields, "meta_load").map(|load| exact(Some(load)).unwrap_or(f64::NAN));
    said
}

/// Lines at which a source assigns to `targets`, for messages: at most three.
#[must_use]
pub fn target_lines(text: &[u8]) -> Vec<usize> {
    text.split(|byte| *byte == b'\n')
        .enumerate()
        .filter(|(_, line)| {
            mentions(line, b"targets") && line.windows(2).any(|pair| pair == b"]=" || pair == b"] ")
        })
        .filter(|(_, line)| line.contains(&b'[') && line.contains(&b'='))
        .map(|(at, _)| at + 1)
        .take(3)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paper_s_scripts_count_from_one_and_a_head_overrides() {
        assert_eq!(base(b"targets[whoami+1] = mds[whoami].load"), 0);
        assert_eq!(base(b"targets[whoami+1] = MDSs[whoami].load"), 1);
        assert_eq!(base(b"-- as MDSs did\nreturn {}"), 0);
        assert_eq!(base(b"local myMDSs = 1"), 0);
        assert_eq!(base(b"--!ranks 0\nMDSs[0] = 1"), 0);
        assert_eq!(base(b"-- a balancer\n--!ranks 1\nreturn {}"), 1);
    }
}
