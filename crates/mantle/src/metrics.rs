//! Input of a balancer at a tick: measurements of every rank that is up, the movable units of this
//! rank, a cache's counters.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

/// Number of a daemon of one service, from 0: what CephFS calls an MDS rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u32);

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Maximum number of ranks of one service.
pub const RANKS_MAX: u32 = 1024;
/// Maximum number of units per tick: hosts report their heaviest units.
pub const UNITS_MAX: usize = 4096;

/// One rank's measurements. All are finite and not negative; [`Metrics::check`] refuses others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankMetrics {
    /// Load of the units for which it is the authority (`auth`, `auth.meta_load`), in the service's
    /// own units.
    pub auth: f64,
    /// The same plus the load of replicas (`all`, `all.meta_load`).
    pub all: f64,
    /// Processor use, an average, in percent (`cpu`, `cpu_load_avg`).
    pub cpu: f64,
    /// Processor use since the last tick, in percent (`cpu_inst`, `cpu_load_inst`).
    pub cpu_inst: f64,
    /// Memory in use, in percent (`mem`).
    pub mem: f64,
    /// Length of the request queue (`q`, `queue_len`).
    pub queue: f64,
    /// Requests per second (`req`, `req_rate`).
    pub requests: f64,
    /// Metrics specific to a service, under their own names.
    pub extra: BTreeMap<String, f64>,
}

/// Names of [`RankMetrics::fields`], as scripts know them.
pub const FIELDS: [&str; 7] = ["auth", "all", "cpu", "cpu_inst", "mem", "q", "req"];
/// The same under Ceph's names. Ceph has no memory metric.
pub const CEPH_FIELDS: [&str; 7] = [
    "auth.meta_load",
    "all.meta_load",
    "cpu_load_avg",
    "cpu_load_inst",
    "mem",
    "queue_len",
    "req_rate",
];

impl RankMetrics {
    /// The measurements in the order of [`FIELDS`].
    #[must_use]
    pub const fn fields(&self) -> [f64; 7] {
        [
            self.auth,
            self.all,
            self.cpu,
            self.cpu_inst,
            self.mem,
            self.queue,
            self.requests,
        ]
    }
}

/// Something that moves as a whole: a subtree, a sequencer, a shard.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Unit {
    /// Its name, unique in the service.
    pub name: String,
    /// Its popularity, in the units of [`RankMetrics::auth`].
    pub load: f64,
    /// The counters of which it consists, such as `IRD`, `IWR`, `READDIR`, `FETCH`, `STORE`: the
    /// input of `metaload`.
    pub counters: BTreeMap<String, f64>,
    /// It never moves, regardless of the policy.
    pub pinned: bool,
    /// Its last arrival. It moves with the unit.
    pub arrival: Option<Arrival>,
}

/// A unit's last move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Tick of the move.
    pub tick: u64,
    /// Where it was before.
    pub from: Rank,
    /// Number of consecutive returns to the rank where it had been before: each one doubles the
    /// wait before the next.
    pub returns: u32,
}

/// The information that one rank has at a tick.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    /// The ranks that are up, including this one. A rank that is missing is down, and receives
    /// nothing.
    pub ranks: BTreeMap<Rank, RankMetrics>,
    /// The units that this rank could give away.
    pub units: Vec<Unit>,
}

impl Metrics {
    /// Checks whether a policy can be run on these measurements.
    ///
    /// # Errors
    /// What is wrong, in one sentence: the host's measurements are invalid.
    pub fn check(&self, whoami: Rank) -> Result<(), String> {
        if !self.ranks.contains_key(&whoami) {
            return Err(format!(
                "rank {whoami} is not up, and has nothing to balance"
            ));
        }
        if let Some((rank, _)) = self
            .ranks
            .last_key_value()
            .filter(|(rank, _)| rank.0 >= RANKS_MAX)
        {
            return Err(format!("rank {rank} is beyond {}", RANKS_MAX - 1));
        }
        let bad = |value: f64| !value.is_finite() || value < 0.0;
        for (rank, metrics) in &self.ranks {
            let own = FIELDS.iter().copied().zip(metrics.fields());
            let extra = metrics
                .extra
                .iter()
                .map(|(name, value)| (name.as_str(), *value));
            if let Some((name, value)) = own.chain(extra).find(|(_, value)| bad(*value)) {
                return Err(format!("rank {rank} measured {name} = {value}"));
            }
        }
        if self.units.len() > UNITS_MAX {
            return Err(format!(
                "{} units: {UNITS_MAX} are looked at",
                self.units.len()
            ));
        }
        let mut names = std::collections::BTreeSet::new();
        for unit in &self.units {
            if let Some(value) = std::iter::once(&unit.load)
                .chain(unit.counters.values())
                .find(|value| bad(**value))
            {
                return Err(format!("unit {} measured {value}", unit.name));
            }
            if !names.insert(&unit.name) {
                return Err(format!("two units are called {}", unit.name));
            }
        }
        Ok(())
    }
}

/// A cache's counters at a tick.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CacheMetrics {
    /// Seconds since the cache started.
    pub seconds: f64,
    /// Keys it holds.
    pub keys: f64,
    /// Bytes it holds.
    pub bytes: f64,
    /// Reads per second.
    pub gets: f64,
    /// Writes per second.
    pub puts: f64,
    /// Reads per second that missed.
    pub misses: f64,
}

/// Names of [`CacheMetrics::fields`].
pub const CACHE_FIELDS: [&str; 6] = ["time", "keys", "bytes", "gets", "puts", "misses"];

impl CacheMetrics {
    /// The counters in the order of [`CACHE_FIELDS`].
    #[must_use]
    pub const fn fields(&self) -> [f64; 6] {
        [
            self.seconds,
            self.keys,
            self.bytes,
            self.gets,
            self.puts,
            self.misses,
        ]
    }
}

/// The subject of a policy's decisions.
#[derive(Clone, Debug, PartialEq)]
pub enum Facts {
    /// Distribution of load over the ranks of a service.
    Cluster(Metrics),
    /// How many keys a cache keeps (PAR-07).
    Cache(CacheMetrics),
}

/// Measurements of the last ticks, oldest first: read by `nacre.series`.
#[derive(Clone, Debug)]
pub struct Series {
    ticks: VecDeque<BTreeMap<Rank, Vec<f64>>>,
    most: usize,
}

impl Series {
    /// Keeps up to `most` ticks.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            ticks: VecDeque::new(),
            most: most.max(1),
        }
    }
    /// Adds a tick. A cache's counters count as those of rank 0.
    pub fn push(&mut self, facts: &Facts) {
        if self.ticks.len() == self.most {
            self.ticks.pop_front();
        }
        self.ticks.push_back(match facts {
            Facts::Cluster(metrics) => metrics
                .ranks
                .iter()
                .map(|(rank, metrics)| (*rank, metrics.fields().to_vec()))
                .collect(),
            Facts::Cache(metrics) => BTreeMap::from([(Rank(0), metrics.fields().to_vec())]),
        });
    }
    /// Ticks that are kept now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ticks.len()
    }
    /// Whether there was no tick yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ticks.is_empty()
    }
    /// One rank's values of one field; ticks at which it was down are omitted.
    pub fn values(&self, rank: Rank, field: usize) -> impl Iterator<Item = f64> {
        self.ticks
            .iter()
            .filter_map(move |tick| tick.get(&rank)?.get(field).copied())
    }
}
