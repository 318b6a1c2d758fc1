//! Operations of clients that found no room, so that what was sent after them does not overtake
//! them (DESIGN §3, Order).
//!
//! ```text
//!  3 4 5 ─▶ no room: {3 4 5}     6 ─▶ waits for 3: {3 4 5 6}     3 again ─▶ taken: {4 5 6}     7 ─▶ waits for 4 …
//! ```
//! A connection keeps order, and a client sends again in order; who turns one operation away and
//! takes a later one breaks it. Where the whole group had no room nothing later is taken; where one
//! object had none, nothing later on that object.
//!
//! Invariant: nothing is taken of a client while an earlier operation of it that it may not
//! overtake is written down here, unless that client has given it up: it is then below what the
//! client says it has answers for, or was not repeated for long.

use crate::key;
use nacre_types::{ClientId, Instance, ObjectId, Time};
use nacre_wire::msg::client::{OpRequest, RequestId};
use std::collections::BTreeMap;
use std::time::Duration;

/// An operation that is not repeated for so long will not come any more: clients repeat theirs
/// every two seconds. A client that says nothing for so long does not repeat anything.
const GONE: Duration = Duration::from_secs(20);
/// Operations of one client that are noted: more than a client has in flight.
const WAITING_MAX: usize = 4_096;
/// Clients looked through for such when there are more.
const CLIENTS: usize = 256;
/// An operation that was turned away so often does not come again at once.
const AT_ONCE_MAX: u32 = 4;

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

/// What waits for an operation that was turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// All that its client sends to the group after it.
    Group,
    /// What its client sends after it for an object with this hash.
    Object(u32),
}

impl Holds {
    /// What is behind one operation on the object.
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
    /// None of them for want of room: they may come again at once.
    at_once: bool,
}

/// See the module head.
#[derive(Debug, Default)]
pub struct TurnedAway {
    clients: BTreeMap<(ClientId, Instance), Client>,
}

impl TurnedAway {
    /// Whether the operation must wait for an earlier one, and what waits for it then. Forgets what
    /// its client has given up: what is below the lowest one that it awaits.
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

    /// It has to come again. Whether it may at once: with those of its client before it, in order.
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

    /// Whether the operation is taken: there is room, and it must not wait. If not, the whole group
    /// waits for it.
    pub fn admit(&mut self, now: Time, request: &OpRequest, room: bool) -> bool {
        let taken = self.must_wait(now, request).is_none() && room;
        if taken {
            self.take(&request.request);
        } else {
            self.refuse(now, request, Why::NoRoom, Holds::Group);
        }
        taken
    }

    /// It is taken, or answered.
    pub fn take(&mut self, request: &RequestId) {
        let who = (request.client, request.instance);
        if let Some(Client { waiting, .. }) = self.clients.get_mut(&who) {
            waiting.remove(&request.sequence);
            if waiting.is_empty() {
                self.clients.remove(&who);
            }
        }
    }

    /// Forgets clients that have not been heard for long; whether any is left.
    pub fn is_heard(&mut self, now: Time) -> bool {
        self.clients
            .retain(|_, client| now.since(client.heard) < GONE);
        !self.is_empty()
    }

    /// All that have to come again.
    pub fn all(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.clients.iter().flat_map(|(&(client, instance), one)| {
            one.waiting.keys().map(move |&sequence| RequestId {
                client,
                instance,
                sequence,
            })
        })
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

    /// Only the lowest one used to be written down: when that came again and was taken, whatever
    /// came next was taken too, before the others.
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

    /// (Reading.) A client gave up one operation while it awaited an older one from somebody else:
    /// nothing later of it was taken until that one ended.
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
        // Each time it comes again counts.
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

    /// (Reading.) What was given up and had only to be dated made those behind it come again as
    /// fast as they could.
    #[test]
    fn nothing_comes_at_once_for_ever() {
        let mut away = TurnedAway::default();
        assert!(away.turn_away(&request(3), Why::Undated));
        (0..4).for_each(|_| assert!(away.turn_away(&request(4), Why::Behind)));
        assert!(!away.turn_away(&request(4), Why::Behind));
    }

    /// (Planted by a stranger: those that were heard lately went.)
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

    /// (Reading.) A client that asks for what no map has may go on for ever.
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
