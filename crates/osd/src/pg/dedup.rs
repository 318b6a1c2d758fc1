//! A placement group's memory of operations, so that a resend is answered and not executed again (DESIGN §3, Exactly once).
//!
//! Every writing operation is remembered from its log entry until its client confirms the answer (`answered_below`). While the entry
//! is in the log, the log is the memory; when the log forgets it before the client confirms, a record takes its place. An operation
//! below the mark that nobody remembers is refused: it may have been executed.

use nacre_types::{ClientId, Instance, ObjectId, Version};
use nacre_wire::msg::client::{RequestId, SubReply};
use nacre_wire::msg::replication::{ClientMark, Dedup, DedupRecord, LogEntry};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is known of a request.
#[derive(Debug, PartialEq)]
pub enum Seen<'a> {
    /// Never heard of: execute it.
    New,
    /// Executed: this was its update.
    Done(&'a Done),
    /// Confirmed long ago, or lost: never execute it.
    Superseded,
}

/// An operation that was executed.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    memory: Memory,
    /// It has a stored record of its own, besides the log entry it may still have.
    stored: bool,
}

/// Where what is known of it is.
#[derive(Clone, Debug, PartialEq)]
enum Memory {
    /// In its log entry, which the log holds or held.
    Entry(Arc<LogEntry>),
    /// In a record.
    Record(DedupRecord),
}

impl Done {
    /// Its update.
    #[must_use]
    pub fn version(&self) -> Version {
        match &self.memory {
            Memory::Entry(entry) => entry.version,
            Memory::Record(record) => record.version,
        }
    }
    /// What it returned.
    #[must_use]
    pub fn results(&self) -> &[SubReply] {
        match &self.memory {
            Memory::Entry(entry) => &entry.results,
            Memory::Record(record) => &record.results,
        }
    }
    fn object(&self) -> &ObjectId {
        match &self.memory {
            Memory::Entry(entry) => &entry.object,
            Memory::Record(record) => &record.object,
        }
    }
    /// As it is kept when the log has forgotten it.
    #[must_use]
    pub fn record(&self) -> DedupRecord {
        match &self.memory {
            Memory::Entry(entry) => DedupRecord {
                request: entry.request,
                version: entry.version,
                object: entry.object.clone(),
                results: entry.results.clone(),
            },
            Memory::Record(record) => record.clone(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Client {
    below: u64,
    done: BTreeMap<u64, Done>,
}

/// The memory: of entries in the log and of older ones alike.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DedupTable {
    clients: BTreeMap<(ClientId, Instance), Client>,
}

impl DedupTable {
    /// From stored records, marks and the log.
    pub fn restore<'a>(old: Dedup, log: impl Iterator<Item = &'a Arc<LogEntry>>) -> Self {
        let mut table = Self::default();
        for ClientMark { below } in old.marks {
            table.confirm(&below, below.sequence);
        }
        for record in old.records {
            table.remember(record.request, Memory::Record(record), true);
        }
        for entry in log {
            table.on_entry(entry);
        }
        table
    }

    /// Looks a request up.
    #[must_use]
    pub fn seen(&self, request: &RequestId) -> Seen<'_> {
        let Some(client) = self.clients.get(&(request.client, request.instance)) else { return Seen::New };
        match client.done.get(&request.sequence) {
            Some(done) => Seen::Done(done),
            None if request.sequence < client.below => Seen::Superseded,
            None => Seen::New,
        }
    }

    /// Whether a later operation of the same client changed the object: one that is unknown has had its turn then, and changed nothing (what it was
    /// answered went with its interval). Executed now it would come after what its client sent later: a guard that did not hold might hold.
    #[must_use]
    pub fn is_overtaken(&self, request: &RequestId, object: &ObjectId) -> bool {
        let Some(client) = self.clients.get(&(request.client, request.instance)) else { return false };
        client.done.range(request.sequence + 1..).any(|(_, done)| done.object() == object)
    }

    /// Remembers an update.
    ///
    /// Returns the sequence numbers that it confirms and that have stored records to be removed.
    pub fn on_entry(&mut self, entry: &Arc<LogEntry>) -> Vec<u64> {
        // The primary's own updates: nobody asked, nobody asks again.
        if entry.request.sequence == 0 {
            return Vec::new();
        }
        self.remember(entry.request, Memory::Entry(entry.clone()), false);
        self.confirm(&entry.request, entry.answered_below)
    }

    fn remember(&mut self, request: RequestId, memory: Memory, stored: bool) {
        let client = self.clients.entry((request.client, request.instance)).or_default();
        let done = Done { memory, stored };
        if let Some(former) = client.done.insert(request.sequence, done)
            && former.stored
            && let Some(done) = client.done.get_mut(&request.sequence)
        {
            done.stored = true;
        }
    }

    /// The client has all answers below `below`. Returns the sequence numbers that are forgotten now and have stored records.
    pub fn confirm(&mut self, who: &RequestId, below: u64) -> Vec<u64> {
        let client = self.clients.entry((who.client, who.instance)).or_default();
        client.below = client.below.max(below);
        let mut gone = Vec::new();
        while let Some(first) = client.done.first_entry()
            && *first.key() < client.below
        {
            let (sequence, done) = first.remove_entry();
            if done.stored {
                gone.push(sequence);
            }
        }
        gone
    }

    /// A record of its own has been stored for the request, if it is remembered.
    pub fn mark_stored(&mut self, request: &RequestId) {
        let client = self.clients.get_mut(&(request.client, request.instance));
        if let Some(done) = client.and_then(|client| client.done.get_mut(&request.sequence)) {
            done.stored = true;
        }
    }

    /// Everything was stored anew beside a log that begins after `tail`: see [`Self::beyond`].
    pub fn mark_beyond(&mut self, tail: Version) {
        for done in self.clients.values_mut().flat_map(|client| client.done.values_mut()) {
            done.stored = done.version() <= tail;
        }
    }

    /// The client's mark.
    #[must_use]
    pub fn below(&self, who: &RequestId) -> u64 {
        self.clients.get(&(who.client, who.instance)).map_or(0, |client| client.below)
    }

    /// Undoes [`Self::on_entry`] for an update that turned out never to have happened.
    pub fn forget(&mut self, entry: &LogEntry) {
        if let Some(client) = self.clients.get_mut(&(entry.request.client, entry.request.instance))
            && client.done.get(&entry.request.sequence).is_some_and(|done| done.version() == entry.version)
        {
            client.done.remove(&entry.request.sequence);
        }
    }

    /// What must be kept beside a log that begins after `tail`.
    #[must_use]
    pub fn beyond(&self, tail: Version) -> Dedup {
        let done = self.clients.values().flat_map(|client| client.done.values());
        let records = done.filter(|done| done.stored || done.version() <= tail).map(Done::record);
        let marks = self.clients.iter().map(|((client, instance), state)| ClientMark {
            below: RequestId { client: *client, instance: *instance, sequence: state.below },
        });
        Dedup { records: records.collect(), marks: marks.collect() }
    }

    /// Takes out the records of objects that leave with a split; marks are kept by both halves.
    pub fn split(&mut self, mut leaves: impl FnMut(&ObjectId) -> bool) -> Self {
        let mut other = Self::default();
        for (id, client) in &mut self.clients {
            let (gone, kept) =
                std::mem::take(&mut client.done).into_iter().partition(|(_, done)| leaves(done.object()));
            client.done = kept;
            other.clients.insert(*id, Client { below: client.below, done: gone });
        }
        other
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pg::testing::{entry, v};

    fn request(sequence: u64) -> RequestId {
        RequestId { client: ClientId(1), instance: Instance(1), sequence }
    }

    #[test]
    fn a_resend_is_answered_until_confirmed_and_refused_after() {
        let mut table = DedupTable::default();
        let mut first = entry("a", Version::NONE, v(1, 1));
        first.request = request(1);
        first.answered_below = 1;
        table.on_entry(&first.into());
        assert!(matches!(table.seen(&request(1)), Seen::Done(done) if done.version() == v(1, 1)));
        assert_eq!(table.seen(&request(2)), Seen::New);
        assert_eq!(table.confirm(&request(0), 2), [0; 0], "nothing stored but in the log");
        assert_eq!(table.seen(&request(1)), Seen::Superseded);
        assert_eq!(table.seen(&RequestId { instance: Instance(2), ..request(1) }), Seen::New);
    }

    /// Every update used to remove a stored record for each answer that its client confirmed, though hardly any is ever stored: one
    /// write to the store's tables per operation, for nothing.
    #[test]
    fn only_confirmed_requests_with_a_record_of_their_own_have_something_to_remove() {
        let mut table = DedupTable::default();
        for n in 1..=4 {
            let mut update = entry("a", Version::NONE, v(1, n));
            (update.request, update.answered_below) = (request(n), 1);
            assert!(table.on_entry(&update.into()).is_empty());
        }
        table.mark_stored(&request(2));
        assert_eq!(table.beyond(v(1, 1)).records.iter().map(|r| r.request.sequence).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(table.confirm(&request(0), 4), [2]);
        table.mark_beyond(v(1, 4));
        assert_eq!(table.confirm(&request(0), 5), [4]);
    }

    #[test]
    fn the_primarys_own_updates_are_nobodys_requests() {
        let mut table = DedupTable::default();
        let mut own = entry("a", Version::NONE, v(1, 1));
        own.request = RequestId::default();
        assert!(table.on_entry(&own.into()).is_empty());
        assert_eq!(table, DedupTable::default());
    }

    #[test]
    fn a_split_takes_each_record_to_its_objects_new_home_and_marks_to_both() {
        let mut table = DedupTable::default();
        for (n, name) in [(1, "a"), (2, "b")] {
            let mut update = entry(name, Version::NONE, v(1, n));
            update.request = request(n);
            update.answered_below = 1;
            table.on_entry(&update.into());
        }
        let other = table.split(|object| object.name == nacre_types::Name::from("b"));
        assert!(matches!(table.seen(&request(1)), Seen::Done(_)));
        assert!(matches!(other.seen(&request(2)), Seen::Done(_)));
        assert_eq!(other.seen(&request(0)), Seen::Superseded);
    }
}
