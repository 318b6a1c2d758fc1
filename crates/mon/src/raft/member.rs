//! Members of consensus: a monitor together with its store.
//!
//! Consensus counts votes and acknowledgements by member. A monitor that is removed and added again
//! under its number has a new store without the old votes and acknowledgements: it is another
//! member. A late message (a stale leader's heartbeat, a request for a vote) names the former
//! member, and the new one ignores it. Members that founded the cluster have store 0.
//!
//! ```text
//!  raft id (u64):   0 │ store, 43 bits │ monitor + 1, 20 bits
//! ```

use nacre_types::MonId;

const MON_BITS: u32 = 20;

/// Upper bound of stores' numbers.
pub const STORES: u64 = 1 << 43;

/// See the module head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// The monitor.
    pub mon: MonId,
    /// The random number of its store; 0 for one that founded the cluster.
    pub store: u64,
}

impl Member {
    /// A monitor that founds the cluster.
    #[must_use]
    pub const fn founder(mon: MonId) -> Self {
        Self { mon, store: 0 }
    }

    /// Its id in the consensus library; never 0, which stands for no member there.
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

    /// The member with a library's id.
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
        // As in logs from before stores had numbers.
        assert_eq!(Member::founder(MonId(2)).raft_id(), 3);
    }
}
