//! The remaining space of pools as last reported by the cluster, for services that display it.
//!
//! ```text
//!  look ─▶ asked less than ROOM_AGE ago? ──no──▶ ask the monitors: one question for all pools
//!              └─yes─▶ what is known; is_new once the question was answered or refused
//! ```
//! Invariant: the cluster is asked at most once in [`ROOM_AGE`], however often services look.

use nacre_types::{PoolId, Time};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// Older reports are requested again when a service looks.
pub const ROOM_AGE: Duration = Duration::from_secs(2);

/// The remaining space of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes that can still be written, as last reported. `None`: not reported yet, or there is no
    /// such pool.
    pub free: Option<u64>,
    /// Requested within [`ROOM_AGE`], or no newer report is available. Otherwise a newer one may
    /// arrive in a later turn.
    pub is_new: bool,
}
impl Room {
    /// For engines that do not report it.
    pub const UNKNOWN: Self = Self {
        free: None,
        is_new: true,
    };
}

/// See the module head.
#[derive(Clone, Debug, Default)]
pub struct Rooms {
    known: BTreeMap<PoolId, u64>,
    asked: Option<Time>,
    waits: bool,
}

impl Rooms {
    /// The remaining space of each pool, from the monitors' reply to `df`; `None`: the reply does
    /// not contain it.
    #[must_use]
    pub fn of_df(reply: &Value) -> Option<BTreeMap<PoolId, u64>> {
        let of_pool = |pool: &Value| {
            Some((
                PoolId(pool["id"].as_u64()?),
                pool["max_available_bytes"].as_u64()?,
            ))
        };
        Some(
            reply["pools"]
                .as_array()?
                .iter()
                .filter_map(of_pool)
                .collect(),
        )
    }
    /// What is known about a pool, and whether to ask the cluster now.
    pub fn look(&mut self, now: Time, pool: PoolId) -> (Room, bool) {
        let asks = self.asked.is_none_or(|asked| now.since(asked) >= ROOM_AGE);
        if asks {
            (self.asked, self.waits) = (Some(now), true);
        }
        (
            Room {
                free: self.known.get(&pool).copied(),
                is_new: !self.waits,
            },
            asks,
        )
    }
    /// Stores the reported space of each pool; `None`: the cluster does not report it.
    pub fn on_said(&mut self, said: Option<BTreeMap<PoolId, u64>>) {
        self.waits = false;
        if let Some(said) = said {
            self.known = said;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_is_asked_once_in_two_seconds_however_often_services_look() {
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        let (mut rooms, pool) = (Rooms::default(), PoolId(3));
        let (nothing, seven) = (
            Room {
                free: None,
                is_new: false,
            },
            Room {
                free: Some(7),
                is_new: true,
            },
        );
        assert_eq!(rooms.look(at(0), pool), (nothing, true));
        assert_eq!(
            rooms.look(at(1), pool),
            (nothing, false),
            "it is asked already"
        );
        rooms.on_said(Some(BTreeMap::from([(pool, 7)])));
        assert_eq!(rooms.look(at(1_999), pool), (seven, false));
        assert_eq!(
            rooms.look(at(1_999), PoolId(4)).0,
            Room::UNKNOWN,
            "no such pool"
        );
        let old = Room {
            is_new: false,
            ..seven
        };
        assert_eq!(
            rooms.look(at(2_000), pool),
            (old, true),
            "what was known is told until then"
        );
        assert_eq!(
            rooms.look(at(4_000), pool),
            (old, true),
            "the question may be lost"
        );
        rooms.on_said(None);
        assert_eq!(
            rooms.look(at(4_001), pool),
            (seven, false),
            "a refusal is no reason to wait or to ask at once"
        );
    }
}
