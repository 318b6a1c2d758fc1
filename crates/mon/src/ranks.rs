//! Ranks of file systems without a server (ADR 0006, "Ranks"), for health: `FS_RANK_DOWN` and
//! `FS_NO_STANDBY`.
//!
//! ```text
//!  registry: settings name the ranks; holders' and standbys' keys are deleted with their leases
//!     └─ each second: missing servers, and since when on this monitor's clock ─▶ after GRACE: reported
//! ```
//! A takeover, and the start of a cluster, leave ranks without a server for a moment; that needs no
//! warning. The registry is read on each query, so that a check ends with its cause.
//!
//! Invariant: only ranks that are in the registry now are reported as down.

use crate::state::meta::Meta;
use nacre_types::{Name, Rank, Time};
use nacre_wire::Wire as _;
use nacre_wire::fs::registry::{PREFIX, STANDBYS};
use nacre_wire::fs::{FsKey, FsSettings};
use nacre_wire::msg::meta::MetaSpan;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A shorter absence is not reported.
pub const GRACE: Duration = Duration::from_secs(5);

/// Contents of the registry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registry {
    /// All ranks, and whether each has a server.
    pub ranks: BTreeMap<(Name, Rank), bool>,
    /// Number of standbys.
    pub standbys: usize,
}

impl Registry {
    /// Reads it from service metadata.
    #[must_use]
    pub fn of(meta: &Meta) -> Self {
        let within = |prefix: &str| MetaSpan::Prefix {
            prefix: prefix.into(),
        };
        let (mut ranks, mut holders) = (BTreeMap::new(), BTreeSet::new());
        for pair in meta.within(&within(PREFIX)) {
            match FsKey::parse(&pair.key) {
                Some((name, FsKey::Settings)) => {
                    let there =
                        FsSettings::from_bytes(&pair.value).map_or(0, |settings| settings.ranks);
                    ranks.extend((0..there).map(|rank| ((name.clone(), Rank(rank)), false)));
                }
                Some((name, FsKey::Rank(rank))) => drop(holders.insert((name, rank))),
                _ => {}
            }
        }
        for holder in holders {
            ranks.entry(holder).and_modify(|served| *served = true);
        }
        Self {
            ranks,
            standbys: meta.within(&within(STANDBYS)).count(),
        }
    }
    fn down(&self) -> impl Iterator<Item = &(Name, Rank)> {
        self.ranks
            .iter()
            .filter(|(_, served)| !**served)
            .map(|(rank, _)| rank)
    }
    /// Whether there are file systems but no standby.
    fn lacks_standby(&self) -> bool {
        !self.ranks.is_empty() && self.standbys == 0
    }
}

/// Since when a server is missing. See the module head.
#[derive(Clone, Debug, Default)]
pub struct Ranks {
    seen: Option<u64>,
    down: BTreeMap<(Name, Rank), Time>,
    alone: Option<Time>,
}

impl Ranks {
    /// Follows the registry, in awake time of this process.
    pub fn follow(&mut self, awake: Time, meta: &Meta) {
        if self.seen.replace(meta.revision()) != Some(meta.revision()) {
            self.note(awake, &Registry::of(meta));
        }
    }
    fn note(&mut self, awake: Time, registry: &Registry) {
        let down: BTreeSet<&(Name, Rank)> = registry.down().collect();
        self.down.retain(|rank, _| down.contains(rank));
        for rank in down {
            self.down.entry(rank.clone()).or_insert(awake);
        }
        self.alone = registry
            .lacks_standby()
            .then(|| self.alone.unwrap_or(awake));
    }

    /// Ranks without a server for longer than the grace, with the duration.
    #[must_use]
    pub fn down(&self, awake: Time, registry: &Registry) -> Vec<(Name, Rank, Duration)> {
        let long = |rank: &(Name, Rank)| {
            let since = awake.since(*self.down.get(rank)?);
            (since > GRACE).then(|| (rank.0.clone(), rank.1, since))
        };
        registry.down().filter_map(long).collect()
    }
    /// Whether there has been no standby for longer than the grace.
    #[must_use]
    pub fn lacks_standby(&self, awake: Time, registry: &Registry) -> bool {
        registry.lacks_standby() && self.alone.is_some_and(|since| awake.since(since) > GRACE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A takeover needs no warning, nor does one followed by another.
    #[test]
    fn what_is_missing_for_a_moment_is_not_said() {
        let at = |s| Time::ZERO + Duration::from_secs(s);
        let registry = |served: [bool; 2], standbys| {
            let rank = |n: usize| (Name::from("home"), Rank(n as u16));
            Registry {
                ranks: (0..2).map(|n| (rank(n), served[n])).collect(),
                standbys,
            }
        };
        let mut ranks = Ranks::default();
        let one = registry([true, false], 0);
        ranks.note(at(1), &one);
        assert!(ranks.down(at(6), &one).is_empty() && !ranks.lacks_standby(at(6), &one));
        ranks.note(at(6), &registry([true, true], 1));
        ranks.note(at(7), &one);
        assert!(
            ranks.down(at(12), &one).is_empty() && !ranks.lacks_standby(at(12), &one),
            "since 7"
        );
        assert_eq!(
            ranks.down(at(13), &one),
            [("home".into(), Rank(1), Duration::from_secs(6))]
        );
        assert!(ranks.lacks_standby(at(13), &one));
        let all = registry([true, true], 1);
        assert!(
            ranks.down(at(13), &all).is_empty() && !ranks.lacks_standby(at(13), &all),
            "it ends with its cause"
        );
        assert!(
            !ranks.lacks_standby(at(13), &Registry::default()),
            "without file systems none is wanted"
        );
    }
}
