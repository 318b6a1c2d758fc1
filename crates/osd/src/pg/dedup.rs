//! A placement group's memory of operations, so that a resend is answered and not executed again
//! (DESIGN §3, Exactly once).
//!
//! Every writing operation is remembered from its log entry until its client confirms the answer
//! (`answered_below`). While the entry is in the log, the log is the memory; when the log is
//! trimmed before the client confirms, a record replaces the entry. An operation below the mark
//! that is not remembered is refused: it may have been executed.
//!
//! Clients are forgotten, too (F18): beyond a maximum number, those whose last update is oldest, in
//! the order of the log, so that members agree. A member that forgets keeps a *horizon*: the time,
//! by its own clock, when it last saw anything of a client that it forgot; for loaded or adopted
//! clients, the time of that. An operation of a client that is not known here was not executed
//! before if it was first sent after the horizon: otherwise its update would have been seen here
//! later than it was sent, and forgotten with its client.
//!
//! ```text
//!  OSD's clock ──── E of X is logged ──── horizon (X and others are forgotten) ───────────────▶
//!                ▲ X sends R                          ▲ R again: first sent before the horizon, refused
//!                                                     ▲ Y asks for the first time: first sent after it, executed
//! ```
//! A client that was forgotten and comes back is known, but not all of its operations: an operation
//! that is not remembered is judged by the horizon of the time when the client came back, until one
//! has been dated (simulator, seed 42: a compare-and-set was executed, its client forgotten, known
//! again by another operation in flight beside it, and the resend executed once more).
//!
//! The client states when it first sent the operation (`OpRequest::dated`) in terms of *this*
//! clock: an earliest time, counted from a reading that the client had from here. Then it does not
//! matter how long the request waited, in a queue or in the socket of a stalled daemon; an age
//! written into the request would begin to count only when the request is read. A client without a
//! reading is given one and asks again (`OpFailure::Undated`), but only in PGs that have forgotten
//! a client. A horizon is never stored or sent; the fact that there is one is both.

use super::log::entry_bytes;
use super::ring::Ring;
use nacre_types::{ClientId, Instance, ObjectId, Time, Version};
use nacre_wire::Record;
use nacre_wire::msg::client::{RequestId, SubReply};
use nacre_wire::msg::replication::{ClientMark, Dedup};
use std::collections::BTreeMap;

/// The state of a request in the memory.
#[derive(Debug, PartialEq)]
pub enum Seen<'a> {
    /// Unknown: execute it.
    New,
    /// Executed: its update.
    Done(&'a Done),
    /// Confirmed long ago, or lost: never execute it.
    Superseded,
    /// Its client, or earlier operations of its client, may have been forgotten: execute it if it
    /// was first sent after this time.
    Stranger(Time),
}

/// An operation that was executed.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// Its update.
    record: Record,
    /// The record is stored separately, besides a log entry that may still exist.
    stored: bool,
}

impl Done {
    /// Its update's version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.record.version()
    }
    /// Its results.
    #[must_use]
    pub fn results(&self) -> Vec<SubReply> {
        self.record.results()
    }
    /// The approximate size of its record.
    fn bytes(&self) -> usize {
        entry_bytes(self.record.view())
    }
    fn object(&self) -> &ObjectId {
        self.record.object()
    }
    /// The record that is kept when its log entry is trimmed.
    #[must_use]
    pub const fn record(&self) -> &Record {
        &self.record
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Client {
    below: u64,
    done: Ring<Done>,
    /// Its last update.
    last: Version,
    /// When that update was seen here, loaded or adopted.
    seen: Time,
    /// The client may have been forgotten before: operations below `from` that are not remembered
    /// were executed at `gap` at the latest.
    from: u64,
    gap: Time,
}

impl Client {
    /// The client has all answers below `below`. Returns the sequence numbers that are now
    /// forgotten and have stored records.
    fn confirm(&mut self, below: u64, bytes: &mut usize) -> Vec<u64> {
        self.below = self.below.max(below);
        let mut gone = Vec::new();
        while let Some((sequence, done)) = self.done.pop_below(self.below) {
            if done.stored {
                gone.push(sequence);
                *bytes -= done.bytes();
            }
        }
        gone
    }

    fn remember(&mut self, record: Record, stored: bool, bytes: &mut usize) {
        let sequence = record.request().sequence;
        let former = self
            .done
            .insert(sequence, Done { record, stored })
            .filter(|former| former.stored);
        if stored || former.is_some() {
            let done = self.done.get_mut(sequence).expect("just put in");
            done.stored = true;
            *bytes = *bytes + done.bytes() - former.as_ref().map_or(0, Done::bytes);
        }
    }

    /// Bytes of its stored records.
    fn stored_bytes(&self) -> usize {
        self.done
            .values()
            .filter(|done| done.stored)
            .map(Done::bytes)
            .sum()
    }
}

/// A client that was forgotten.
#[derive(Debug, PartialEq, Eq)]
pub struct Forgotten {
    /// The client.
    pub client: ClientId,
    /// Its instance.
    pub instance: Instance,
    /// Its operations that have stored records.
    pub stored: Vec<u64>,
}

/// The memory of entries in the log and of older ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DedupTable {
    clients: BTreeMap<(ClientId, Instance), Client>,
    /// Present if clients were forgotten: see the module head.
    horizon: Option<Time>,
    /// Bytes of all stored records.
    bytes: usize,
}

impl DedupTable {
    /// Builds the memory from the log and from records and marks that are loaded or adopted now.
    pub fn restore(old: Dedup, log: impl IntoIterator<Item = Record>, now: Time) -> Self {
        let mut table = Self {
            horizon: old.forgot.then_some(now),
            ..Self::default()
        };
        // Each client may have been forgotten once and have come back.
        let from = if old.forgot { u64::MAX } else { 0 };
        let last = old.last.into_iter().chain(std::iter::repeat(Version::NONE));
        for (ClientMark { below }, last) in old.marks.into_iter().zip(last) {
            let client = table.client(&below);
            (client.last, client.seen) = (client.last.max(last), now);
            (client.from, client.gap) = (from, now);
            client.below = client.below.max(below.sequence);
        }
        for record in old.records {
            let request = record.request();
            let client = table
                .clients
                .entry((request.client, request.instance))
                .or_default();
            (client.last, client.seen) = (client.last.max(record.version()), now);
            (client.from, client.gap) = (from, now);
            client.remember(record, true, &mut table.bytes);
        }
        for entry in log {
            table.on_entry(&entry, now);
        }
        table
    }

    fn client(&mut self, who: &RequestId) -> &mut Client {
        self.clients.entry((who.client, who.instance)).or_default()
    }

    /// Whether clients were forgotten.
    #[must_use]
    pub const fn forgot(&self) -> bool {
        self.horizon.is_some()
    }

    /// The same memory was adopted: others may have forgotten clients that were not seen here.
    pub fn adopted_as_it_is(&mut self, now: Time) {
        if self.horizon.is_some() {
            self.horizon = Some(now);
            self.clients
                .values_mut()
                .for_each(|client| (client.from, client.gap) = (u64::MAX, now));
        }
    }

    /// The number of remembered clients.
    #[must_use]
    pub fn len(&self) -> usize {
        self.clients.len()
    }
    /// Whether no client is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Forgets the oldest clients if there are more than `most`. In batches of an eighth, so that
    /// each costs little.
    pub fn forget_oldest(&mut self, most: usize) -> Vec<Forgotten> {
        if self.clients.len() <= most + most / 8 {
            return Vec::new();
        }
        let mut ages: Vec<(Version, (ClientId, Instance))> = self
            .clients
            .iter()
            .map(|(who, client)| (client.last, *who))
            .collect();
        ages.sort_unstable();
        ages.truncate(self.clients.len() - most);
        let mut gone = Vec::new();
        for (_, who) in ages {
            let client = self.clients.remove(&who).expect("just listed");
            self.bytes -= client.stored_bytes();
            self.horizon = self.horizon.max(Some(client.seen));
            let stored = client
                .done
                .iter()
                .filter(|(_, done)| done.stored)
                .map(|(sequence, _)| sequence)
                .collect();
            gone.push(Forgotten {
                client: who.0,
                instance: who.1,
                stored,
            });
        }
        gone
    }

    /// Whether the client is unknown and may have been forgotten. Free as long as no client was.
    #[must_use]
    pub fn is_stranger(&self, request: &RequestId) -> bool {
        self.horizon.is_some() && matches!(self.seen(request), Seen::Stranger(_))
    }

    /// An operation of a known client was first sent at `at`, by our clock, at the earliest. A
    /// client begins its operations in the order of their numbers: if this one is newer than those
    /// that may have been forgotten, so are all later ones.
    pub fn dated(&mut self, request: &RequestId, at: Time) {
        if let Some(client) = self.clients.get_mut(&(request.client, request.instance))
            && at > client.gap
        {
            client.from = client.from.min(request.sequence);
        }
    }

    /// Looks a request up.
    #[must_use]
    pub fn seen(&self, request: &RequestId) -> Seen<'_> {
        let Some(client) = self.clients.get(&(request.client, request.instance)) else {
            return self.horizon.map_or(Seen::New, Seen::Stranger);
        };
        match client.done.get(request.sequence) {
            Some(done) => Seen::Done(done),
            None if request.sequence < client.below => Seen::Superseded,
            None if request.sequence < client.from => Seen::Stranger(client.gap),
            None => Seen::New,
        }
    }

    /// Whether the operation was executed, or its client has received its answer.
    #[must_use]
    pub fn knows(&self, request: &RequestId) -> bool {
        matches!(self.seen(request), Seen::Done(_) | Seen::Superseded)
    }

    /// Whether a later operation of the same client changed the object. Then the unknown operation
    /// was handled earlier and changed nothing (its answer was forgotten with its interval).
    /// Executed now it would follow an operation that its client sent later: a guard that did not
    /// hold might hold.
    #[must_use]
    pub fn is_overtaken(&self, request: &RequestId, object: &ObjectId) -> bool {
        let Some(client) = self.clients.get(&(request.client, request.instance)) else {
            return false;
        };
        client
            .done
            .after(request.sequence)
            .any(|done| done.object() == object)
    }

    /// Remembers an update that was seen here now.
    ///
    /// Returns the sequence numbers that it confirms and whose stored records must be removed.
    pub fn on_entry(&mut self, entry: &Record, now: Time) -> Vec<u64> {
        // The primary's own updates have no request and are never resent.
        let request = entry.request();
        if request.sequence == 0 {
            return Vec::new();
        }
        let who = (request.client, request.instance);
        let client = self.clients.entry(who).or_insert_with(|| {
            let from = if self.horizon.is_some() { u64::MAX } else { 0 };
            Client {
                from,
                gap: self.horizon.unwrap_or_default(),
                ..Client::default()
            }
        });
        (client.last, client.seen) = (client.last.max(entry.version()), client.seen.max(now));
        client.remember(entry.clone(), false, &mut self.bytes);
        client.confirm(entry.answered_below(), &mut self.bytes)
    }

    /// Forgets the oldest records if there are more than `most` bytes of them. Returns them with
    /// their clients' marks afterwards: earlier requests of these clients are refused, as if the
    /// client had confirmed the answers. In batches of a quarter, so that each costs little.
    pub fn forget_records(&mut self, most: usize) -> Vec<(RequestId, (u64, Version))> {
        if self.bytes <= most {
            return Vec::new();
        }
        let stored = self.clients.iter().flat_map(|((client, instance), state)| {
            let stored = state.done.iter().filter(|(_, done)| done.stored);
            let id = |sequence| RequestId {
                client: *client,
                instance: *instance,
                sequence,
            };
            stored.map(move |(sequence, done)| (done.version(), id(sequence)))
        });
        let mut ages: Vec<(Version, RequestId)> = stored.collect();
        ages.sort_unstable();
        let mut gone = Vec::new();
        for (_, record) in ages {
            if self.bytes <= most / 4 * 3 {
                break;
            }
            let client = self
                .clients
                .get_mut(&(record.client, record.instance))
                .expect("just listed");
            for sequence in client.confirm(record.sequence + 1, &mut self.bytes) {
                gone.push((
                    RequestId { sequence, ..record },
                    (client.below, client.last),
                ));
            }
        }
        gone
    }

    /// The client has all answers below `below`. Returns the sequence numbers that are now
    /// forgotten and have stored records.
    #[cfg(test)]
    fn confirm(&mut self, who: &RequestId, below: u64) -> Vec<u64> {
        let client = self.clients.entry((who.client, who.instance)).or_default();
        client.confirm(below, &mut self.bytes)
    }

    /// A separate record has been stored for the request, if it is remembered.
    pub fn mark_stored(&mut self, request: &RequestId) {
        let client = self.clients.get_mut(&(request.client, request.instance));
        if let Some(done) = client.and_then(|client| client.done.get_mut(request.sequence))
            && !std::mem::replace(&mut done.stored, true)
        {
            self.bytes += done.bytes();
        }
    }

    /// Everything was stored again beside a log that begins after `tail`: see [`Self::beyond`].
    pub fn mark_beyond(&mut self, tail: Version) {
        for done in self
            .clients
            .values_mut()
            .flat_map(|client| client.done.values_mut())
        {
            done.stored = done.version() <= tail;
        }
        self.bytes = self.clients.values().map(Client::stored_bytes).sum();
    }

    /// The client's mark and its last update, if it is known.
    #[must_use]
    pub fn mark(&self, who: &RequestId) -> Option<(u64, Version)> {
        self.clients
            .get(&(who.client, who.instance))
            .map(|client| (client.below, client.last))
    }

    /// Reverts [`Self::on_entry`] for an update that turned out not to have happened.
    pub fn forget(&mut self, entry: &Record) {
        let request = entry.request();
        if let Some(client) = self.clients.get_mut(&(request.client, request.instance))
            && client
                .done
                .get(request.sequence)
                .is_some_and(|done| done.version() == entry.version())
        {
            let done = client.done.remove(request.sequence).expect("just seen");
            self.bytes -= if done.stored { done.bytes() } else { 0 };
        }
    }

    /// The records to keep beside a log that begins after `tail`.
    #[must_use]
    pub fn beyond(&self, tail: Version) -> Dedup {
        let done = self
            .clients
            .values()
            .flat_map(|client| client.done.values());
        let records = done
            .filter(|done| done.stored || done.version() <= tail)
            .map(|done| done.record.clone());
        let marks = self
            .clients
            .iter()
            .map(|((client, instance), state)| ClientMark {
                below: RequestId {
                    client: *client,
                    instance: *instance,
                    sequence: state.below,
                },
            });
        let last = self.clients.values().map(|client| client.last).collect();
        Dedup {
            records: records.collect(),
            marks: marks.collect(),
            last,
            forgot: self.forgot(),
        }
    }

    /// Takes out the records of objects that leave with a split; both halves keep the marks.
    pub fn split(&mut self, mut leaves: impl FnMut(&ObjectId) -> bool) -> Self {
        let mut other = Self {
            horizon: self.horizon,
            ..Self::default()
        };
        for (id, client) in &mut self.clients {
            let gone = client.done.split(|done| leaves(done.object()));
            other.clients.insert(
                *id,
                Client {
                    done: gone,
                    ..*client
                },
            );
        }
        other.bytes = other.clients.values().map(Client::stored_bytes).sum();
        self.bytes -= other.bytes;
        other
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pg::testing::{fields, v};

    fn request(sequence: u64) -> RequestId {
        RequestId {
            client: ClientId(1),
            instance: Instance(1),
            sequence,
        }
    }

    #[test]
    fn a_resend_is_answered_until_confirmed_and_refused_after() {
        let mut table = DedupTable::default();
        let mut first = fields("a", Version::NONE, v(1, 1));
        first.request = request(1);
        first.answered_below = 1;
        table.on_entry(&first.into(), Time(1));
        assert!(matches!(table.seen(&request(1)), Seen::Done(done) if done.version() == v(1, 1)));
        assert_eq!(table.seen(&request(2)), Seen::New);
        assert_eq!(
            table.confirm(&request(0), 2),
            [0; 0],
            "nothing stored but in the log"
        );
        assert_eq!(table.seen(&request(1)), Seen::Superseded);
        assert_eq!(
            table.seen(&RequestId {
                instance: Instance(2),
                ..request(1)
            }),
            Seen::New
        );
    }

    /// Every update used to remove a stored record for each answer that its client confirmed,
    /// though hardly any is ever stored: one useless write to the store's tables per operation.
    #[test]
    fn only_confirmed_requests_with_a_record_of_their_own_have_something_to_remove() {
        let mut table = DedupTable::default();
        for n in 1..=4 {
            let mut update = fields("a", Version::NONE, v(1, n));
            (update.request, update.answered_below) = (request(n), 1);
            assert!(table.on_entry(&update.into(), Time(1)).is_empty());
        }
        table.mark_stored(&request(2));
        assert_eq!(
            table
                .beyond(v(1, 1))
                .records
                .iter()
                .map(|r| r.request().sequence)
                .collect::<Vec<_>>(),
            [1, 2]
        );
        assert_eq!(table.confirm(&request(0), 4), [2]);
        table.mark_beyond(v(1, 4));
        assert_eq!(table.confirm(&request(0), 5), [4]);
    }

    /// Of three clients, the one whose last update is oldest is forgotten; whether that was loaded,
    /// adopted or seen, operations that it sent by then are refused for ever.
    #[test]
    fn the_client_with_the_oldest_update_is_forgotten_and_leaves_a_horizon() {
        let who = |client: u64, sequence| RequestId {
            client: ClientId(client),
            instance: Instance(1),
            sequence,
        };
        let mut table = DedupTable::default();
        assert_eq!(
            table.seen(&who(9, 1)),
            Seen::New,
            "nobody was forgotten yet"
        );
        for (client, number) in [(1, 1), (2, 2), (3, 3), (1, 4)] {
            let mut update = fields("a", Version::NONE, v(1, number));
            (update.request, update.answered_below) = (who(client, number), 0);
            table.on_entry(&update.into(), Time(10 * number));
        }
        table.mark_stored(&who(2, 2));
        let gone = table.forget_oldest(2);
        assert_eq!(
            gone,
            [Forgotten {
                client: ClientId(2),
                instance: Instance(1),
                stored: vec![2]
            }]
        );
        assert_eq!(table.seen(&who(2, 2)), Seen::Stranger(Time(20)));
        assert!(
            matches!(table.seen(&who(1, 1)), Seen::Done(_)),
            "it did something later"
        );
        // It comes back with number 9: earlier operations may have been executed and forgotten,
        // later ones not.
        let mut again = table.clone();
        let mut update = fields("a", v(1, 4), v(1, 5));
        (update.request, update.answered_below) = (who(2, 9), 0);
        again.on_entry(&update.into(), Time(50));
        assert_eq!(again.seen(&who(2, 2)), Seen::Stranger(Time(20)));
        assert_eq!(again.seen(&who(2, 10)), Seen::Stranger(Time(20)));
        again.dated(&who(2, 9), Time(20));
        assert_eq!(
            again.seen(&who(2, 10)),
            Seen::Stranger(Time(20)),
            "that may have been before the horizon"
        );
        again.dated(&who(2, 9), Time(21));
        assert_eq!(
            (again.seen(&who(2, 2)), again.seen(&who(2, 10))),
            (Seen::Stranger(Time(20)), Seen::New)
        );
        // Loaded entries count as seen at the time of loading.
        let mut loaded = DedupTable::restore(table.beyond(Version::NONE), [], Time(500));
        assert_eq!(loaded.seen(&who(2, 2)), Seen::Stranger(Time(500)));
        assert_eq!(loaded.forget_oldest(1)[0].client, ClientId(3));
        assert!(loaded.forget_oldest(1).is_empty());
    }

    /// Clients never confirm: the oldest records are forgotten, and earlier requests of their
    /// clients are refused.
    #[test]
    fn records_have_a_bound() {
        let mut table = DedupTable::default();
        for number in 1..=100 {
            let mut update = fields("a", Version::NONE, v(1, number));
            (update.request, update.answered_below) = (request(number), 1);
            table.on_entry(&update.into(), Time(1));
            table.mark_stored(&request(number));
        }
        let each = table.bytes / 100;
        assert!(table.forget_records(100 * each).is_empty());
        let gone = table.forget_records(80 * each);
        assert_eq!((gone.len(), table.bytes), (40, 60 * each));
        assert_eq!(gone[39], (request(40), (41, v(1, 100))));
        assert_eq!(table.seen(&request(40)), Seen::Superseded);
        assert!(matches!(table.seen(&request(41)), Seen::Done(_)));
        assert_eq!(table.beyond(v(1, 100)).records.len(), 60);
    }

    #[test]
    fn the_primarys_own_updates_are_nobodys_requests() {
        let mut table = DedupTable::default();
        let mut own = fields("a", Version::NONE, v(1, 1));
        own.request = RequestId::default();
        assert!(table.on_entry(&own.into(), Time(1)).is_empty());
        assert_eq!(table, DedupTable::default());
    }

    #[test]
    fn a_split_takes_each_record_to_its_objects_new_home_and_marks_to_both() {
        let mut table = DedupTable::default();
        for (n, name) in [(1, "a"), (2, "b")] {
            let mut update = fields(name, Version::NONE, v(1, n));
            update.request = request(n);
            update.answered_below = 1;
            table.on_entry(&update.into(), Time(1));
        }
        let other = table.split(|object| object.name == nacre_types::Name::from("b"));
        assert!(matches!(table.seen(&request(1)), Seen::Done(_)));
        assert!(matches!(other.seen(&request(2)), Seen::Done(_)));
        let without = table.split(|object| object.name == nacre_types::Name::from("c"));
        for half in [&table, &other, &without] {
            assert_eq!(
                half.seen(&request(0)),
                Seen::Superseded,
                "its answer was given, and the record is gone"
            );
        }
    }
}
