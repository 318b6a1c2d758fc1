//! Example traces, generated from a seed, identical on every machine.

use crate::metrics::Rank;
use crate::trace::{CacheTick, RankTick, Recorded, Trace, TraceUnit};
use nacre_types::SplitMix64;

/// How the load develops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One rank has all units, and their load stays constant.
    HotSpot,
    /// Two heavy tenants and many light units, all on one rank.
    TwoTenants,
    /// The heavy units change slowly from one end of the namespace to the other.
    Drift,
    /// The load of a quarter of the units grows tenfold for a while.
    FlashCrowd,
    /// Three sequencers of equal load on one rank (Malacology §6.2).
    Sequencers,
    /// The keyspace of a growing simulation in front of a cache, fitted to published figures: 610
    /// gets/s in the first ten minutes, about 210 after 5,400 s; keys put between 600 and 5,400 s,
    /// 55,398 in 15,000 s; values of 3.6 KB.
    Keyspace,
}

/// All shapes with the names used on the command line.
pub const SHAPES: &[(&str, Shape)] = &[
    ("hot-spot", Shape::HotSpot),
    ("two-tenants", Shape::TwoTenants),
    ("drift", Shape::Drift),
    ("flash-crowd", Shape::FlashCrowd),
    ("sequencers", Shape::Sequencers),
    ("keyspace", Shape::Keyspace),
];

const TICKS: usize = 60;

/// Makes a trace.
#[must_use]
pub fn generate(shape: Shape, ranks: u32, seed: u64) -> Trace {
    let mut random = SplitMix64(seed);
    if shape == Shape::Keyspace {
        return keyspace(&mut random);
    }
    let unit = |name: String, load: f64| TraceUnit {
        name,
        rank: Rank(0),
        load: rounded(load),
        pinned: false,
    };
    let units: Vec<TraceUnit> = match shape {
        Shape::Sequencers => (0..3).map(|at| unit(format!("seq{at}"), 60.0)).collect(),
        Shape::TwoTenants => ["red", "blue"]
            .iter()
            .flat_map(|tenant| (0..6).map(move |at| (format!("{tenant}/dir{at}"), 12.0)))
            .chain((0..12).map(|at| (format!("other/dir{at}"), 1.0)))
            .map(|(name, load)| unit(name, load))
            .collect(),
        Shape::HotSpot => (0..16)
            .map(|at| unit(format!("dir{at:02}"), 4.0 + 8.0 * random.unit()))
            .collect(),
        Shape::Drift => (0..16)
            .map(|at| unit(format!("dir{at:02}"), drifted(at, 0)))
            .collect(),
        Shape::FlashCrowd | Shape::Keyspace => {
            (0..16).map(|at| unit(format!("dir{at:02}"), 5.0)).collect()
        }
    };
    let ticks = (0..TICKS)
        .map(|tick| {
            let mut changed = RankTick::default();
            for (at, unit) in units.iter().enumerate() {
                let base = match shape {
                    Shape::Drift => drifted(at, tick),
                    Shape::FlashCrowd if at % 4 == 0 && (20..40).contains(&tick) => {
                        unit.load * 10.0
                    }
                    _ => unit.load,
                };
                // Measured loads never repeat exactly.
                changed.loads.insert(
                    unit.name.clone(),
                    rounded(base * (0.98 + 0.04 * random.unit())),
                );
            }
            changed
        })
        .collect();
    Trace {
        tick_seconds: 10.0,
        recorded: Recorded::Ranks {
            ranks: ranks.max(1),
            capacity: 100.0,
            units,
            ticks,
        },
    }
}

/// A peak of load that moves over sixteen units in sixty ticks.
fn drifted(unit: usize, tick: usize) -> f64 {
    let away = unit as f64 - tick as f64 * 16.0 / TICKS as f64;
    1.0 + 30.0 * (-away * away / 8.0).exp()
}

fn keyspace(random: &mut SplitMix64) -> Trace {
    let ticks = (0..1500)
        .map(|at| {
            let time = f64::from(at) * 10.0;
            let rate = 610.0 - 400.0 * ((time - 600.0) / 4800.0).clamp(0.0, 1.0);
            // A tenth of the keys arrive after the third regime has begun.
            let new_keys = if (600.0..5400.0).contains(&time) {
                103.9
            } else {
                5.41
            };
            CacheTick {
                gets: rounded(rate * (0.95 + 0.1 * random.unit())),
                puts: rounded(new_keys / 10.0),
                new_keys,
                value_bytes: 3600.0,
            }
        })
        .collect();
    Trace {
        tick_seconds: 10.0,
        recorded: Recorded::Cache { ticks },
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
