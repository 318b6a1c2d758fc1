//! The decision of a tick, with everything that `explain` shows.

use crate::metrics::Rank;
use nacre_policy::{ScriptError, Severity};
use nacre_types::Epoch;
use std::collections::BTreeMap;
use std::fmt;

/// Which server clients talk to after a move (MAL-60; Malacology §6.2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The new authority: clients are redirected to it.
    #[default]
    Client,
    /// The first server, which forwards requests to the new authority.
    Proxy,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "client",
            Self::Proxy => "proxy",
        })
    }
}

/// Units that move from one rank to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// The rank that decided.
    pub from: Rank,
    /// The receiver.
    pub to: Rank,
    /// The load that the policy asked to move, in its own units; 0 for units that it placed by
    /// name.
    pub asked: f64,
    /// Sum of the units' loads, in the units of [`Unit::load`](crate::Unit::load).
    pub load: f64,
    /// The units' names, in the order in which they move.
    pub units: Vec<String>,
}

/// Why a tick moved nothing, or something other than what was asked.
#[derive(Clone, Debug, PartialEq)]
pub enum Held {
    /// No version is active.
    NoPolicy,
    /// The policy's source is being read.
    Reading,
    /// It was not read in time, or the read failed.
    Unread(String),
    /// The host's measurements are invalid.
    Metrics(String),
    /// The script failed.
    Script(ScriptError),
    /// The script returned something that must not be done.
    Refused(String),
}

impl Held {
    /// Whether an operator should look at it.
    #[must_use]
    pub const fn is_failure(&self) -> bool {
        !matches!(self, Self::NoPolicy | Self::Reading)
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPolicy => f.write_str("no policy is active"),
            Self::Reading => f.write_str("the policy is being read"),
            Self::Unread(why) | Self::Metrics(why) | Self::Refused(why) => f.write_str(why),
            Self::Script(error) => error.fmt(f),
        }
    }
}

/// Outcome of one tick of one rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// Epoch of the map that named the policy.
    pub epoch: Epoch,
    /// Activation that ran; 0 for none.
    pub activation: u64,
    /// Version that ran; 0 for none.
    pub version: u32,
    /// The host's tick number.
    pub tick: u64,
    /// Position held, and the reason. Then `moves` is empty and `keep` is none.
    pub held: Option<Held>,
    /// What moves.
    pub moves: Vec<Move>,
    /// Number of keys that a cache keeps; none: it may grow.
    pub keep: Option<u64>,
    /// Which server clients talk to.
    pub mode: Mode,
    /// The ranks' loads as the policy weighs them.
    pub loads: BTreeMap<Rank, f64>,
    /// The load that the policy asked each rank to receive.
    pub targets: BTreeMap<Rank, f64>,
    /// This rank's load by the policy's `metaload`; the host reports it to the other ranks as
    /// `auth`. None without the hook.
    pub meta_load: Option<f64>,
    /// Why no more was moved: one sentence per reason.
    pub notes: Vec<String>,
    /// Output of the script through `print` and `BAL_LOG`: for `explain`, not for the cluster's
    /// log.
    pub log: Vec<(Severity, String)>,
    /// Instructions used.
    pub instructions: u64,
}
