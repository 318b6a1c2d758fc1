//! Finds leases with silent owners: the number of renewals did not change for the whole duration of
//! the lease while this client watched.
//!
//! ```text
//!            read           read                       read             write, if the object is still of that version
//!  ──────────┤├─────────────┤├─────────────────────────┤├──────────────▶│
//!            renewals = 4   renewals = 4               renewals = 4
//!             since = after this read ├─── at least the lease's time ───┤ before that read
//! ```
//! No wall clock is used, and no clocks are compared: an owner that renewed after `since` would
//! have changed the number. A client that starts watching gives every lease its full duration
//! again. So leases never end early; how late they end depends on the watching clients.

use super::record::LeaseRecord;
use nacre_types::Time;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
struct Seen {
    renewals: u64,
    ttl: Duration,
    since: Time,
}

/// See the module head.
#[derive(Clone, Debug, Default)]
pub struct Silence {
    seen: BTreeMap<u64, Seen>,
}

impl Silence {
    /// Takes over all leases, from a read that ended at that time.
    pub fn read(&mut self, ended: Time, leases: &BTreeMap<u64, LeaseRecord>) {
        self.seen.retain(|lease, _| leases.contains_key(lease));
        for (lease, record) in leases {
            let (renewals, ttl) = (record.renewals, Duration::from_millis(record.ttl_ms));
            let fresh = Seen {
                renewals,
                ttl,
                since: ended,
            };
            let seen = self.seen.entry(*lease).or_insert(fresh);
            if seen.renewals != renewals {
                *seen = fresh;
            }
        }
    }
    /// Leases to end, with their unchanged number of renewals; `began` is when the newest read
    /// began.
    #[must_use]
    pub fn due(&self, began: Time) -> Vec<(u64, u64)> {
        let due = |(_, seen): &(&u64, &Seen)| began.since(seen.since) >= seen.ttl;
        self.seen
            .iter()
            .filter(due)
            .map(|(lease, seen)| (*lease, seen.renewals))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leases(list: &[(u64, u64)]) -> BTreeMap<u64, LeaseRecord> {
        let record = |renewals| LeaseRecord {
            ttl_ms: 1_000,
            owner: "me".into(),
            renewals,
        };
        list.iter()
            .map(|(lease, renewals)| (*lease, record(*renewals)))
            .collect()
    }
    fn at(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    // Fails when a renewal does not restart the time, and when the time begins with the read
    // instead of after it.
    #[test]
    fn only_who_stays_silent_for_the_whole_time_is_due() {
        let mut silence = Silence::default();
        silence.read(at(10), &leases(&[(1, 0), (2, 0)]));
        assert_eq!(silence.due(at(1_005)), []);
        silence.read(at(600), &leases(&[(1, 0), (2, 1)]));
        assert_eq!(silence.due(at(1_010)), [(1, 0)]);
        silence.read(at(1_020), &leases(&[(2, 1), (3, 7)]));
        assert_eq!(silence.due(at(1_600)), [(2, 1)]);
        assert_eq!(silence.due(at(2_020)), [(2, 1), (3, 7)]);
    }

    #[test]
    fn who_comes_new_gives_the_whole_time_again() {
        let mut silence = Silence::default();
        silence.read(at(5_000), &leases(&[(1, 0)]));
        assert_eq!(silence.due(at(5_900)), []);
    }
}
