//! Positions in histories: the cluster map's and a placement group's.
//!
//! ```text
//! cluster map   epoch 1 ─ 2 ─ 3 ─ 4 ─ 5 ─ 6 …            one per committed change
//! a PG           interval 2 ──────▶ interval 5 ─▶ …       a new one when its acting set changes
//!   its log      2'1 2'2 2'3 2'4    5'5 5'6               numbers continue, the interval tells writers apart
//! ```

use std::fmt;

/// A version of the cluster map; the monitors advance it by exactly one per committed change. Zero
/// means that no map is known yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Before the first map.
    pub const NONE: Self = Self(0);

    /// The epoch after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.checked_add(1).expect("epochs outlive the cluster"))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e{}", self.0)
    }
}

/// The position of one update in a placement group's log: the interval whose primary ordered it,
/// and its number. Numbers are consecutive within a log. Two logs may hold different updates under
/// one number; their intervals then differ. Ordered by interval first: a longer log of an older
/// interval is *older*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// First epoch of the interval in which the primary ordered this update.
    pub interval: Epoch,
    /// Its number, from 1.
    pub number: u64,
}

impl Version {
    /// Before the first update.
    pub const NONE: Self = Self {
        interval: Epoch::NONE,
        number: 0,
    };

    /// The update after this one, ordered in `interval`.
    #[must_use]
    pub fn next_in(self, interval: Epoch) -> Self {
        assert!(
            interval >= self.interval,
            "a primary orders updates only in an interval at least as new as its log's head"
        );
        Self {
            interval,
            number: self
                .number
                .checked_add(1)
                .expect("versions outlive the cluster"),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}'{}", self.interval.0, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_interval_beats_a_longer_log() {
        let long = Version {
            interval: Epoch(3),
            number: 900,
        };
        let new = Version {
            interval: Epoch(4),
            number: 12,
        };
        assert!(new > long);
        assert_eq!(
            long.next_in(Epoch(5)),
            Version {
                interval: Epoch(5),
                number: 901
            }
        );
    }
}
