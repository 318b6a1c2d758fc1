//! Who takes part: a monitor together with its store.
//!
//! Consensus counts votes and acknowledgements by member. A monitor that is removed and let in
//! again under its number has a new store that knows of none of them: it is another member. A late
//! message (a heartbeat of a stale leader, a request for a vote) names the former member, and the
//! new one does not take it. Members that founded the cluster have store 0.
//!
//! ```text
//!  raft id (u64):   0 │ store, 43 bits │ monitor + 1, 20 bits
//! ```

use nacre_types::MonId;

const MON_BITS: u32 = 20;

/// Stores' numbers are smaller than this.
pub const STORES: u64 = 1 << 43;

/// See the module head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// Which monitor.
    pub mon: MonId,
    /// The number that was drawn when its store was made; 0 for one that founded the cluster.
    pub store: u64,
}

impl Member {
    /// A monitor that founds the cluster.
    #[must_use]
    pub const fn founder(mon: MonId) -> Self {
        Self { mon, store: 0 }
    }

    /// The consensus library's id of it; never 0, which stands for no member there.
    ///
    /// # Panics
    /// When a number is too large: callers refuse those.
    #[must_use]
    pub fn raft_id(self) -> u64 {
        assert!(
            self.store < STORES && self.mon.0 < (1 << MON_BITS) - 1,
            "{self:?} fits"
        );
        self.store << MON_BITS | (u64::from(self.mon.0) + 1)
    }

    /// The member of a library's id.
    #[must_use]
    pub fn of(raft_id: u64) -> Self {
        let low = raft_id & ((1 << MON_BITS) - 1);
        let mon = u32::try_from(low).expect("20 bits").wrapping_sub(1);
        Self {
            mon: MonId(mon),
            store: raft_id >> MON_BITS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_and_ids_are_the_same() {
        for mon in [0, 1, 6, 999_999] {
            for store in [0, 1, STORES - 1] {
                let member = Member {
                    mon: MonId(mon),
                    store,
                };
                assert_eq!(Member::of(member.raft_id()), member);
                assert_ne!(member.raft_id(), 0);
            }
        }
        // As logs of before there were stores' numbers have it.
        assert_eq!(Member::founder(MonId(2)).raft_id(), 3);
    }
}
