//! Limits how much of the daemon's own thread a client's programs may use.
//!
//! A short call is part of the daemon's normal work, like a read. The use of a client's longer
//! calls is accumulated and decays with time. While a client exceeds its allowance, its calls are
//! evaluated on other threads, in fair turns. So a client that sends a new script with every call,
//! each just below the limits or ended only by the clock, costs the other clients only a few
//! milliseconds per second.
//!
//! Use is counted in instructions, so equal inputs give equal decisions.

use nacre_types::{ClientId, Time};
use std::collections::BTreeMap;

/// A call below this is short: a few tens of microseconds.
const SHORT: u64 = 2_000;
/// Instructions that a client's longer calls may have used, after decay.
const MOST: u64 = 200_000;
/// Decay in instructions per millisecond: half a percent to two percent of a processor.
const PER_MS: u64 = 200;
/// Clients remembered; those with the least use are dropped first.
const CLIENTS_MAX: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct Owed {
    units: u64,
    since: Time,
}

impl Owed {
    fn at(self, now: Time) -> u64 {
        let worked_off = u64::try_from(now.since(self.since).as_millis())
            .unwrap_or(u64::MAX)
            .saturating_mul(PER_MS);
        self.units.saturating_sub(worked_off)
    }
}

/// See the module head.
#[derive(Debug, Default)]
pub struct Allowances {
    owed: BTreeMap<ClientId, Owed>,
}

impl Allowances {
    /// Whether the client's calls must be evaluated on another thread.
    #[must_use]
    pub fn is_spent(&self, client: ClientId, now: Time) -> bool {
        self.owed
            .get(&client)
            .is_some_and(|owed| owed.at(now) > MOST)
    }

    /// Records that a call used this many instructions on the daemon's own thread.
    pub fn charge(&mut self, client: ClientId, used: u64, now: Time) {
        if used < SHORT {
            return;
        }
        let owed = self.owed.get(&client).map_or(0, |owed| owed.at(now));
        self.owed.insert(
            client,
            Owed {
                units: owed.saturating_add(used),
                since: now,
            },
        );
        if self.owed.len() > CLIENTS_MAX {
            self.owed.retain(|_, owed| owed.at(now) > 0);
        }
        if self.owed.len() > CLIENTS_MAX {
            let least = self
                .owed
                .iter()
                .min_by_key(|(_, owed)| owed.at(now))
                .map(|(client, _)| *client);
            self.owed.remove(&least.expect("there are many"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn short_calls_are_free_and_long_ones_are_worked_off() {
        let (mut all, now) = (Allowances::default(), Time(5_000_000_000));
        let (busy, other) = (ClientId(1), ClientId(2));
        for _ in 0..10_000 {
            all.charge(busy, SHORT - 1, now);
        }
        assert!(!all.is_spent(busy, now));
        for _ in 0..=MOST / 20_000 {
            assert!(!all.is_spent(busy, now));
            all.charge(busy, 20_000, now);
        }
        assert!(all.is_spent(busy, now) && !all.is_spent(other, now));
        let later = now + Duration::from_millis(20_000 / PER_MS);
        assert!(!all.is_spent(busy, later));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut all = Allowances::default();
        for client in 0..2 * CLIENTS_MAX as u64 {
            all.charge(ClientId(client), 20_000 + client, Time(1));
        }
        assert_eq!(all.owed.len(), CLIENTS_MAX);
        assert!(all.owed.contains_key(&ClientId(2 * CLIENTS_MAX as u64 - 1)));
    }
}
