//! Writes directories, so that the journal can be trimmed (CEPH-22).
//!
//! ```text
//!  a round: all of the journal in memory ─▶ dirty state is captured ─▶ it is safe ─▶ written ─▶ the journal's head
//!           has the new beginning ─▶ objects before that are deleted
//! ```
//! A round begins when the journal is long, or has not been empty for a while. Changes made
//! meanwhile belong to the next round: a directory that changes ten times in a round is written
//! once.
//!
//! Invariants: only what is safe in the journal is written to directories; the journal's beginning
//! advances when everything before it has been written.

use super::*;
use crate::dirty::Part;
use crate::journal::JournalHead;
use nacre_wire::fs::Backpointer;

/// Operations of a round at a time.
const AT_ONCE: usize = 8;
/// Entries in one of them, and its approximate size in bytes.
const ENTRIES_MAX: usize = 1000;
const BYTES_MAX: usize = 1 << 20;
/// Journal objects deleted at a time.
const DELETED_AT_ONCE: u64 = 64;

/// The progress of a round.
#[derive(Debug, Default)]
pub(super) enum Round {
    #[default]
    None,
    /// What was read from the journal is merged with the fragments that it concerns.
    Loading,
    /// Waits until all lower batches are safe.
    Waiting(u64),
    Writing,
    Head,
    Deleting,
}

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Writing {
    pub round: Round,
    /// When the last round ended; and whether that was in this turn.
    pub ended: Time,
    just_ended: bool,
    /// Operations to submit, and those in flight.
    todo: VecDeque<Operation>,
    under_way: usize,
    /// The captured fragments: they stay in memory until they are written.
    pub parts: BTreeMap<(Ino, Frag), Part>,
    /// The journal's new beginning: an object, and its first batch.
    pub begins: (u64, u64),
    /// All lower objects are deleted.
    pub gone_below: u64,
}

impl Writing {
    pub fn is_idle(&self) -> bool {
        matches!(self.round, Round::None)
    }
}

impl Mds {
    /// Whether the journal has reached its maximum length.
    pub(super) fn is_journal_long(&self) -> bool {
        // The journal's changes of a fragment that could not be read cannot be merged.
        self.lost.is_empty()
            && self.journal.object() - self.first >= self.config.limits.journal_objects_max
    }
    /// Whether the journal has something that directories do not.
    fn has_unwritten(&self) -> bool {
        !self.dirty.is_empty() || !self.overlay.is_empty()
    }
    /// When the next round is due.
    pub(super) fn write_at(&self) -> Time {
        if self.writing.just_ended {
            // Requests that waited for that continue.
            return self.now;
        }
        if !self.is_live() || !self.writing.is_idle() || !self.has_unwritten() {
            return Time::MAX;
        }
        self.writing.ended + self.config.limits.write_after
    }

    /// Continues the round, or begins one.
    pub(super) fn write_directories(&mut self) {
        self.writing.just_ended = false;
        let flush = self.wants_flush();
        let limits = &self.config.limits;
        if self.writing.is_idle() {
            let is_long =
                self.journal.object() - self.first >= (limits.journal_objects_max / 4).max(1);
            // A long journal may contain only sessions.
            if is_long
                || flush
                || (self.has_unwritten() && (self.wants_room || self.write_at() <= self.now))
            {
                self.writing.round = Round::Loading;
            }
        }
        if matches!(self.writing.round, Round::Loading) && self.load_overlay() {
            self.capture();
        }
        if let Round::Waiting(batch) = self.writing.round
            && self.journal.safe() >= batch
        {
            self.writing.round = Round::Writing;
        }
        match self.writing.round {
            Round::Writing => {
                self.submit_writes();
                if self.writing.under_way == 0 {
                    self.write_head();
                }
            }
            Round::Deleting => {
                self.submit_writes();
                if self.writing.under_way == 0 {
                    self.end_round();
                }
            }
            Round::None | Round::Loading | Round::Waiting(_) | Round::Head => {}
        }
    }

    fn submit_writes(&mut self) {
        while self.writing.under_way < AT_ONCE
            && let Some(operation) = self.writing.todo.pop_front()
        {
            self.writing.under_way += 1;
            let deletes = operation
                .ops
                .iter()
                .any(|op| matches!(op, SubOp::Delete {}));
            self.queue.push_back((
                operation,
                if deletes {
                    Purpose::Delete
                } else {
                    Purpose::Write
                },
            ));
        }
    }
    /// One of the round's operations is complete.
    pub(super) const fn on_written(&mut self) {
        self.writing.under_way -= 1;
    }

    /// Captures the dirty state.
    fn capture(&mut self) {
        self.wants_room = false;
        self.flushing.taken += 1;
        // A directory's entry has a copy of its head, for when the directory is not in memory.
        for dir in self.dirty.heads() {
            if let Some((parent, frag, name)) = self.tree.copy_head(dir) {
                self.dirty.part(parent, frag).name(name);
            }
        }
        let (parts, ended) = self.dirty.take();
        for ((dir, frag), part) in &parts {
            self.write_part(*dir, *frag, part);
        }
        for dir in ended {
            let ops = vec![SubOp::AssertExists { exists: true }, SubOp::Delete {}];
            let operation = self.operation(&fragment_name(dir, Frag::WHOLE), ops, Vec::new());
            self.writing.todo.push_back(operation);
        }
        if self.flushing.retiring && self.journal.is_idle() {
            self.journal.begin_object();
        }
        self.writing.parts = parts;
        self.writing.begins = (self.journal.object(), self.journal.object_begins());
        self.writing.round = Round::Waiting(self.journal.end());
    }

    /// The changes of a fragment's object, in pieces of bounded size; its head is written with the
    /// last one.
    fn write_part(&mut self, dir: Ino, frag: Frag, part: &Part) {
        let name = fragment_name(dir, frag);
        let (mut set, mut removed, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut all = part.names.iter().peekable();
        while let Some((_, name_of)) = all.next() {
            let key = Bytes::copy_from_slice(entry_key(name_of).as_bytes());
            bytes += key.len();
            match self.tree.find(dir, name_of) {
                Found::Entry(entry) => {
                    let value = Bytes::from(entry.to_bytes());
                    bytes += value.len();
                    set.push((key, value));
                }
                Found::Nothing => removed.push(key),
                Found::Unknown(..) => unreachable!("what is dirty is in memory"),
            }
            if all.peek().is_some()
                && (set.len() + removed.len() >= ENTRIES_MAX || bytes >= BYTES_MAX)
            {
                let ops = changes(std::mem::take(&mut set), std::mem::take(&mut removed));
                let operation = self.operation(&name, ops, Vec::new());
                self.writing.todo.push_back(operation);
                bytes = 0;
            }
        }
        let mut ops = changes(set, removed);
        if part.head
            && let Some(head) = self.tree.head(dir, frag)
        {
            ops.push(SubOp::SetAttr {
                name: HEAD_ATTR.into(),
                value: head.to_bytes().into(),
            });
        }
        if part.place
            && let Some((parent, name)) = self.tree.place(dir)
        {
            let value = Backpointer {
                dir: parent,
                name: name.clone(),
            }
            .to_bytes()
            .into();
            ops.push(SubOp::SetAttr {
                name: PARENT_ATTR.into(),
                value,
            });
        }
        let operation = self.operation(&name, ops, Vec::new());
        self.writing.todo.push_back(operation);
    }

    /// All directories are written: moves the journal's beginning.
    fn write_head(&mut self) {
        self.writing.parts.clear();
        let (first, sequence) = self.writing.begins;
        let safe = self.journal.safe();
        let (mut clients, mut answers) = (Vec::new(), Vec::new());
        for (client, session) in &self.sessions {
            // Others are in batches after the beginning.
            if session.since < safe {
                clients.push(Known {
                    client: *client,
                    instance: session.instance,
                    here: true,
                });
            }
            for kept in session
                .answers
                .values()
                .filter(|kept| kept.batch.is_some_and(|batch| batch < safe))
            {
                let (safe_below, reply) = (
                    session.safe_below,
                    FsReply {
                        safe: true,
                        ..kept.reply.clone()
                    },
                );
                answers.push(Answered {
                    client: *client,
                    instance: session.instance,
                    safe_below,
                    reply,
                });
            }
        }
        // What an earlier holder recorded and was not read yet is recorded again.
        let known = self
            .removing
            .all()
            .filter_map(|ino| self.tree.place(ino))
            .map(|(dir, _)| dir);
        let stale: BTreeSet<Ino> = known.chain(self.wanted.keys().copied()).collect();
        let head = JournalHead {
            first,
            sequence,
            serial: self.journal.serial(),
            gone_below: self.writing.gone_below,
            clients,
            answers,
            stale: stale.into_iter().collect(),
            writers: self.writers.all(),
            transactions: self.transactions.all(safe),
            fenced: self.all_fenced(),
        };
        let bytes = encoded(head);
        let ops = vec![SubOp::WriteFull {
            length: bytes.len() as u64,
        }];
        let operation = self.operation(
            &journal::head_name(self.config.rank),
            ops,
            vec![bytes.into()],
        );
        self.queue.push_back((operation, Purpose::Head));
        self.writing.round = Round::Head;
    }

    /// The journal's new head is written: deletes what precedes its beginning.
    pub(super) fn on_head_written(&mut self) {
        let (first, _) = self.writing.begins;
        self.first = first;
        self.lengths.cut_off(first);
        let until = first.min(self.writing.gone_below + DELETED_AT_ONCE);
        for object in self.writing.gone_below..until {
            let ops = vec![SubOp::AssertExists { exists: true }, SubOp::Delete {}];
            let operation = self.operation(
                &journal::object_name(self.config.rank, object),
                ops,
                Vec::new(),
            );
            self.writing.todo.push_back(operation);
        }
        self.writing.gone_below = until;
        self.writing.round = Round::Deleting;
    }

    fn end_round(&mut self) {
        self.writing.round = Round::None;
        self.writing.ended = self.now;
        self.writing.just_ended = true;
        self.flushing.ended = self.flushing.taken;
        self.room_at = 0;
        // Requests that waited for a shorter journal.
        self.try_again = true;
    }
}

/// The bytes of the journal's head.
#[nacre_types::planted]
fn encoded(head: JournalHead) -> Vec<u8> {
    head.to_bytes()
}

fn changes(set: Vec<(Bytes, Bytes)>, removed: Vec<Bytes>) -> Vec<SubOp> {
    // Removing a key from an object that does not exist is an error.
    let mut ops = vec![SubOp::Create { exclusive: false }];
    if !removed.is_empty() {
        ops.push(SubOp::OmapRemove { keys: removed });
    }
    if !set.is_empty() {
        ops.push(SubOp::OmapSet { entries: set });
    }
    ops
}
