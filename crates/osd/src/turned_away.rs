//! Operations of clients that found no room, so that what was sent after them does not overtake
//! them (DESIGN §3, Order).
//!
//! ```text
//!  3 4 5 ─▶ no room: {3 4 5}     6 ─▶ waits for 3: {3 4 5 6}     3 again ─▶ taken: {4 5 6}     7 ─▶ waits for 4 …
//! ```
//! A connection keeps order, and a client sends again in order; who turns one operation away and
//! takes a later one breaks it.
//!
//! Invariant: nothing is taken of a client while an earlier operation of it is written down here,
//! unless that client has given it up: it is then below what the client says it has answers for. A
//! client that is not heard any more is forgotten: its operations have waited long enough to come
//! again.

use nacre_types::{ClientId, Instance, Time};
use nacre_wire::msg::client::RequestId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A client that says nothing for so long does not repeat anything any more.
const GONE: Duration = Duration::from_secs(120);
/// Operations of one client that are noted: more than a client has in flight.
const WAITING_MAX: usize = 4_096;
/// Clients looked through for such when there are more.
const CLIENTS: usize = 256;

/// Why an operation has to come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// There is no room for it.
    NoRoom,
    /// It does not say when it was first sent, by our clock.
    Undated,
    /// An earlier one of its client has to come again.
    Behind,
}

#[derive(Debug)]
struct Client {
    heard: Time,
    waiting: BTreeSet<u64>,
    /// None of them for want of room: they may come again at once.
    at_once: bool,
}

/// See the module head.
#[derive(Debug, Default)]
pub struct TurnedAway {
    clients: BTreeMap<(ClientId, Instance), Client>,
}

impl TurnedAway {
    /// Whether the operation must wait for an earlier one. Forgets what its client has given up:
    /// what is below the lowest one that it awaits.
    pub fn must_wait(&mut self, request: &RequestId, answered_below: u64) -> bool {
        let who = (request.client, request.instance);
        let Some(Client { waiting, .. }) = self.clients.get_mut(&who) else { return false };
        *waiting = waiting.split_off(&answered_below);
        if waiting.is_empty() {
            self.clients.remove(&who);
            return false;
        }
        waiting.first().is_some_and(|first| *first < request.sequence)
    }

    /// It has to come again. Whether it may at once: with those of its client before it, in order.
    pub fn refuse(&mut self, now: Time, request: &RequestId, why: Why) -> bool {
        if self.clients.len() >= CLIENTS {
            self.clients.retain(|_, client| now.since(client.heard) < GONE);
        }
        let who = (request.client, request.instance);
        let first = || Client { heard: now, waiting: BTreeSet::new(), at_once: true };
        let client = self.clients.entry(who).or_insert_with(first);
        client.heard = now;
        if client.waiting.len() < WAITING_MAX {
            client.waiting.insert(request.sequence);
        }
        client.at_once &= why != Why::NoRoom;
        client.at_once
    }

    /// It is taken.
    pub fn take(&mut self, request: &RequestId) {
        let who = (request.client, request.instance);
        if let Some(Client { waiting, .. }) = self.clients.get_mut(&who) {
            waiting.remove(&request.sequence);
            if waiting.is_empty() {
                self.clients.remove(&who);
            }
        }
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(sequence: u64) -> RequestId {
        RequestId { sequence, ..RequestId::default() }
    }

    /// Only the lowest one used to be written down: when that came again and was taken, whatever
    /// came next was taken too, before the others.
    #[test]
    fn nothing_overtakes_what_was_turned_away() {
        let mut away = TurnedAway::default();
        for sequence in [3, 4] {
            assert_eq!(away.must_wait(&request(sequence), 1), sequence > 3);
            assert!(!away.refuse(Time(0), &request(sequence), Why::NoRoom));
        }
        assert!(!away.must_wait(&request(3), 1));
        away.take(&request(3));
        assert!(away.must_wait(&request(5), 1), "4 has not come again");
        assert!(!away.must_wait(&request(4), 1));
        away.take(&request(4));
        assert!(!away.must_wait(&request(5), 1) && away.is_empty());
    }

    #[test]
    fn what_its_client_gave_up_holds_nobody_back() {
        let mut away = TurnedAway::default();
        assert!(away.refuse(Time(0), &request(3), Why::Undated));
        assert!(away.refuse(Time(0), &request(4), Why::Behind), "its turn comes as soon as the first one is dated");
        away.take(&request(4));
        assert!(away.must_wait(&request(5), 3));
        assert!(!away.must_wait(&request(5), 4));
        assert!(away.is_empty());
    }

    /// (Planted by a stranger: those that were heard lately went.)
    #[test]
    fn of_many_those_who_are_gone_are_forgotten() {
        let mut away = TurnedAway::default();
        let of = |client: u64, sequence| RequestId { client: ClientId(client), ..request(sequence) };
        for client in 0..300 {
            away.refuse(Time(0), &of(client, 1), Why::NoRoom);
        }
        away.refuse(Time(1), &of(300, 1), Why::NoRoom);
        assert!(away.must_wait(&of(0, 2), 1), "it was heard just now");
        let later = Time(0) + Duration::from_secs(121);
        away.refuse(later, &of(301, 1), Why::NoRoom);
        assert!(!away.must_wait(&of(0, 2), 1));
        assert_eq!(away.clients.len(), 1);
    }

    /// (Reading.) A client that asks for what no map has may go on for ever.
    #[test]
    fn what_is_noted_of_one_client_is_bounded() {
        let mut away = TurnedAway::default();
        for sequence in 1..20_000 {
            away.refuse(Time(0), &request(sequence), Why::NoRoom);
        }
        let noted: usize = away.clients.values().map(|client| client.waiting.len()).sum();
        assert_eq!(noted, WAITING_MAX);
        assert!(away.must_wait(&request(30_000), 1) && !away.must_wait(&request(1), 1));
    }
}
