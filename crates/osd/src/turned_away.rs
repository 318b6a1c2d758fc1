//! Refused operations of clients, noted so that operations sent after them do not overtake them
//! (DESIGN §3, Order).
//!
//! ```text
//!  3 4 5 ─▶ refused: {3 4 5}     6 ─▶ waits for 3: {3 4 5 6}     3 again ─▶ accepted: {4 5 6}     7 ─▶ waits for 4 …
//! ```
//! A connection keeps order, and a client resends in order; refusing one operation and accepting a
//! later one breaks the order. If the whole PG was at its limit nothing later is accepted; if one
//! object was, nothing later on that object.
//!
//! Invariant: no operation of a client is accepted while an earlier one that it may not overtake is
//! noted here, unless the client has given that one up: it is then below the lowest operation that
//! the client awaits, or was not repeated for long.

use crate::key;
use nacre_types::{ClientId, Instance, ObjectId, Time};
use nacre_wire::msg::client::{OpRequest, RequestId};
use std::collections::BTreeMap;
use std::time::Duration;

/// An operation that is not repeated for this time is given up: clients repeat theirs every two
/// seconds. A client that is silent for this time repeats nothing.
const GONE: Duration = Duration::from_secs(20);
/// The maximum number of noted operations of one client: more than a client has in flight.
const WAITING_MAX: usize = 4_096;
/// The number of clients above which silent ones are searched for.
const CLIENTS: usize = 256;
/// An operation that was refused this often is not resent at once.
const AT_ONCE_MAX: u32 = 4;

/// Why an operation must be resent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// A limit is reached.
    NoRoom,
    /// It is not dated by our clock.
    Undated,
    /// An earlier operation of its client must be resent.
    Behind,
}

/// The operations that wait for a refused one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// All that its client sends to the PG after it.
    Group,
    /// All that its client sends after it for an object with this hash.
    Object(u32),
}

impl Holds {
    /// The operations behind one on the object.
    #[must_use]
    pub fn object(object: &ObjectId) -> Self {
        Self::Object(key::hash(object))
    }
}

#[derive(Debug)]
struct Note {
    heard: Time,
    holds: Holds,
    times: u32,
}

#[derive(Debug)]
struct Client {
    heard: Time,
    waiting: BTreeMap<u64, Note>,
    /// None of them was refused because of a limit: they may be resent at once.
    at_once: bool,
}

/// The refused operations of one PG; see the module head.
#[derive(Debug, Default)]
pub struct TurnedAway {
    clients: BTreeMap<(ClientId, Instance), Client>,
}

impl TurnedAway {
    /// Whether the operation must wait for an earlier one, and what waits for it then. Forgets
    /// operations that its client has given up: those below the lowest one that it awaits.
    pub fn must_wait(&mut self, now: Time, request: &OpRequest) -> Option<Holds> {
        let id = &request.request;
        let who = (id.client, id.instance);
        let Client { waiting, .. } = self.clients.get_mut(&who)?;
        *waiting = waiting.split_off(&request.answered_below);
        if waiting.is_empty() {
            self.clients.remove(&who);
            return None;
        }
        let mut hash = None;
        let mut before = waiting
            .range(..id.sequence)
            .filter(|(_, note)| now.since(note.heard) < GONE);
        before.find_map(|(_, note)| match note.holds {
            Holds::Group => Some(Holds::Group),
            Holds::Object(object) => {
                let own = *hash.get_or_insert_with(|| key::hash(&request.object));
                (object == own).then_some(note.holds)
            }
        })
    }

    /// The operation must be resent. Returns whether it may be at once: with those of its client
    /// before it, in order.
    pub fn refuse(&mut self, now: Time, request: &OpRequest, why: Why, holds: Holds) -> bool {
        if self.clients.len() >= CLIENTS {
            self.is_heard(now);
        }
        let who = (request.request.client, request.request.instance);
        let first = || Client {
            heard: now,
            waiting: BTreeMap::new(),
            at_once: true,
        };
        let client = self.clients.entry(who).or_insert_with(first);
        client.heard = now;
        client.at_once &= why != Why::NoRoom;
        let (at_once, sequence) = (client.at_once, request.request.sequence);
        let times = client
            .waiting
            .get(&sequence)
            .map_or(1, |note| note.times.saturating_add(1));
        if times > 1 || client.waiting.len() < WAITING_MAX {
            client.waiting.insert(
                sequence,
                Note {
                    heard: now,
                    holds,
                    times,
                },
            );
        }
        at_once && times <= AT_ONCE_MAX
    }

    /// Whether the operation is accepted: there is capacity, and it must not wait. If not, the
    /// whole PG waits for it.
    pub fn admit(&mut self, now: Time, request: &OpRequest, room: bool) -> bool {
        let taken = self.must_wait(now, request).is_none() && room;
        if taken {
            self.take(&request.request);
        } else {
            self.refuse(now, request, Why::NoRoom, Holds::Group);
        }
        taken
    }

    /// The operation is accepted, or answered.
    pub fn take(&mut self, request: &RequestId) {
        let who = (request.client, request.instance);
        if let Some(Client { waiting, .. }) = self.clients.get_mut(&who) {
            waiting.remove(&request.sequence);
            if waiting.is_empty() {
                self.clients.remove(&who);
            }
        }
    }

    /// Forgets silent clients; returns whether any is left.
    pub fn is_heard(&mut self, now: Time) -> bool {
        self.clients
            .retain(|_, client| now.since(client.heard) < GONE);
        !self.is_empty()
    }

    /// All operations that must be resent.
    pub fn all(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.clients.iter().flat_map(|(&(client, instance), one)| {
            one.waiting.keys().map(move |&sequence| RequestId {
                client,
                instance,
                sequence,
            })
        })
    }

    /// Whether no operation is noted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(sequence: u64) -> OpRequest {
        of(0, sequence)
    }
    fn of(client: u64, sequence: u64) -> OpRequest {
        let request = RequestId {
            client: ClientId(client),
            sequence,
            ..RequestId::default()
        };
        OpRequest {
            request,
            answered_below: 1,
            attempt: 1,
            ..OpRequest::default()
        }
    }
    fn after(answered_below: u64, request: OpRequest) -> OpRequest {
        OpRequest {
            answered_below,
            ..request
        }
    }
    fn on(object: &str, sequence: u64) -> OpRequest {
        OpRequest {
            object: ObjectId::named(object),
            ..request(sequence)
        }
    }
    const NOW: Time = Time(0);

    impl TurnedAway {
        fn waits(&mut self, request: &OpRequest) -> bool {
            self.must_wait(NOW, request).is_some()
        }
        fn turn_away(&mut self, request: &OpRequest, why: Why) -> bool {
            self.refuse(NOW, request, why, Holds::Group)
        }
    }

    /// Only the lowest operation used to be noted: when that was resent and accepted, the next
    /// arrival was accepted too, before the others.
    #[test]
    fn nothing_overtakes_what_was_turned_away() {
        let mut away = TurnedAway::default();
        for sequence in [3, 4] {
            assert_eq!(away.waits(&request(sequence)), sequence > 3);
            assert!(!away.turn_away(&request(sequence), Why::NoRoom));
        }
        assert!(!away.waits(&request(3)));
        away.take(&request(3).request);
        assert!(away.waits(&request(5)), "4 has not come again");
        assert!(!away.waits(&request(4)));
        away.take(&request(4).request);
        assert!(!away.waits(&request(5)) && away.is_empty());
    }

    #[test]
    fn what_its_client_gave_up_holds_nobody_back() {
        let mut away = TurnedAway::default();
        assert!(away.turn_away(&request(3), Why::Undated));
        assert!(
            away.turn_away(&request(4), Why::Behind),
            "its turn comes as soon as the first one is dated"
        );
        away.take(&request(4).request);
        assert!(away.waits(&after(3, request(5))));
        assert!(!away.waits(&after(4, request(5))));
        assert!(away.is_empty());
    }

    /// (Review.) A client gave up one operation while it awaited an older one elsewhere: nothing
    /// later of it was accepted until that one ended.
    #[test]
    fn what_does_not_come_again_holds_nobody_back() {
        let mut away = TurnedAway::default();
        away.turn_away(&request(3), Why::NoRoom);
        let later = NOW + Duration::from_secs(10);
        away.refuse(later, &request(4), Why::Behind, Holds::Group);
        let at = |seconds| NOW + Duration::from_secs(seconds);
        assert!(away.must_wait(at(19), &request(4)).is_some());
        assert!(
            away.must_wait(at(21), &request(4)).is_none()
                && away.must_wait(at(21), &request(5)).is_some()
        );
        // Each resend counts.
        away.refuse(at(25), &request(4), Why::Behind, Holds::Group);
        assert!(away.must_wait(at(40), &request(5)).is_some());
    }

    #[test]
    fn who_waits_for_an_object_holds_nobody_from_others() {
        let mut away = TurnedAway::default();
        away.refuse(
            NOW,
            &on("a", 3),
            Why::NoRoom,
            Holds::object(&ObjectId::named("a")),
        );
        assert!(!away.waits(&on("b", 4)) && !away.waits(&on("a", 2)));
        let holds = away.must_wait(NOW, &on("a", 5));
        assert_eq!(holds, Some(Holds::object(&ObjectId::named("a"))));
        away.refuse(NOW, &on("c", 6), Why::NoRoom, Holds::Group);
        assert!(away.waits(&on("b", 7)) && !away.waits(&on("b", 5)));
    }

    /// (Review.) An abandoned operation that only had to be dated made the operations behind it
    /// repeat as fast as possible.
    #[test]
    fn nothing_comes_at_once_for_ever() {
        let mut away = TurnedAway::default();
        assert!(away.turn_away(&request(3), Why::Undated));
        (0..4).for_each(|_| assert!(away.turn_away(&request(4), Why::Behind)));
        assert!(!away.turn_away(&request(4), Why::Behind));
    }

    /// (Planted by a reviewer: the active ones were forgotten.)
    #[test]
    fn of_many_those_who_are_gone_are_forgotten() {
        let mut away = TurnedAway::default();
        for client in 0..300 {
            away.turn_away(&of(client, 1), Why::NoRoom);
        }
        away.refuse(Time(1), &of(300, 1), Why::NoRoom, Holds::Group);
        assert!(away.waits(&of(0, 2)), "it was heard just now");
        let later = NOW + Duration::from_secs(21);
        away.refuse(later, &of(301, 1), Why::NoRoom, Holds::Group);
        assert!(!away.waits(&of(0, 2)));
        assert_eq!(away.clients.len(), 1);
    }

    /// (Review.) A client that requests something that no map contains may continue for ever.
    #[test]
    fn what_is_noted_of_one_client_is_bounded() {
        let mut away = TurnedAway::default();
        for sequence in 1..20_000 {
            away.turn_away(&request(sequence), Why::NoRoom);
        }
        let noted: usize = away
            .clients
            .values()
            .map(|client| client.waiting.len())
            .sum();
        assert_eq!(noted, WAITING_MAX);
        assert!(away.waits(&request(30_000)) && !away.waits(&request(1)));
    }
}
