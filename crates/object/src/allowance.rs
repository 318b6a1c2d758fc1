//! How much of the daemon's own thread a client's programs may use.
//!
//! A short call is part of the daemon's work like a read. What a client's longer calls use is
//! remembered, and goes with time; a client that has used more than its allowance has its calls
//! evaluated elsewhere, in fair turns, until that is worked off. So somebody whose every call is
//! another script that nearly fits, or one that only the clock ends, costs the other clients a few
//! milliseconds a second.
//!
//! Counted in instructions: the same facts, the same decisions.

use nacre_types::{ClientId, Time};
use std::collections::BTreeMap;

/// A call below this is short: some tens of microseconds.
const SHORT: u64 = 2_000;
/// Instructions that a client's longer calls may have used, beyond what went with time.
const MOST: u64 = 200_000;
/// Instructions that go in a millisecond: half a percent of a processor, to two.
const PER_MS: u64 = 200;
/// Clients remembered; those who owe least go.
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
    /// Whether the client's calls go elsewhere.
    #[must_use]
    pub fn is_spent(&self, client: ClientId, now: Time) -> bool {
        self.owed
            .get(&client)
            .is_some_and(|owed| owed.at(now) > MOST)
    }

    /// A call used so much of the daemon's own thread.
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
