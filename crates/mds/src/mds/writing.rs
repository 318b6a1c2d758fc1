//! Writing directories, so that the journal can be cut off (CEPH-22).
//!
//! ```text
//!  a round: all of the journal in memory ─▶ what is dirty, as it is now ─▶ that is safe ─▶ written ─▶ the journal's head
//!           says where it begins ─▶ objects before that are deleted
//! ```
//! A round begins when the journal is long, or when it has something for a while. What changes
//! meanwhile is the next one's: a directory that changes ten times in a round is written once.
//!
//! Invariants: nothing is written to a directory that is not safe in the journal; the journal's
//! beginning moves when all that was before it has been written.

use super::*;
use crate::dirty::Part;
use crate::journal::JournalHead;
use nacre_wire::fs::Backpointer;

/// Operations of a round at a time.
const AT_ONCE: usize = 8;
/// Entries in one of them, and about so many bytes.
const ENTRIES_MAX: usize = 1000;
const BYTES_MAX: usize = 1 << 20;
/// Journal objects deleted at a time.
const DELETED_AT_ONCE: u64 = 64;

/// How far a round has come.
#[derive(Debug, Default)]
pub(super) enum Round {
    #[default]
    None,
    /// What was read from the journal is put together with the fragments that it is about.
    Loading,
    /// Until all batches below are safe.
    Waiting(u64),
    Writing,
    Head,
    Deleting,
}

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Writing {
    pub round: Round,
    /// When the last one ended; and whether that was in this turn.
    pub ended: Time,
    just_ended: bool,
    /// What is to be written, and what is being written.
    todo: VecDeque<Operation>,
    under_way: usize,
    /// What the round has of fragments: it stays in memory until it is written.
    pub parts: BTreeMap<(Ino, Frag), Part>,
    /// Where the journal will begin: an object, and its first batch.
    pub begins: (u64, u64),
    /// All objects before this one are gone.
    pub gone_below: u64,
}

impl Writing {
    pub fn is_idle(&self) -> bool {
        matches!(self.round, Round::None)
    }
}

impl Mds {
    /// Whether the journal may not become longer.
    pub(super) fn is_journal_long(&self) -> bool {
        // What could not be read cannot be put together with what the journal says of it.
        self.lost.is_empty()
            && self.journal.object() - self.first >= self.config.limits.journal_objects_max
    }
    /// Whether there is something that only the journal has.
    fn has_unwritten(&self) -> bool {
        !self.dirty.is_empty() || !self.overlay.is_empty()
    }
    /// When the next round is due.
    pub(super) fn write_at(&self) -> Time {
        if self.writing.just_ended {
            // What waited for that goes on.
            return self.now;
        }
        if !self.is_live() || !self.writing.is_idle() || !self.has_unwritten() {
            return Time::MAX;
        }
        self.writing.ended + self.config.limits.write_after
    }

    /// Goes on with the round, or begins one.
    pub(super) fn write_directories(&mut self) {
        self.writing.just_ended = false;
        let flush = self.wants_flush();
        let limits = &self.config.limits;
        if self.writing.is_idle() {
            let is_long =
                self.journal.object() - self.first >= (limits.journal_objects_max / 4).max(1);
            // One that is long may have nothing but who came and went.
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
    /// One of the round's operations is done.
    pub(super) const fn on_written(&mut self) {
        self.writing.under_way -= 1;
    }

    /// Takes what is dirty as it is now.
    fn capture(&mut self) {
        self.wants_room = false;
        self.flushing.taken += 1;
        // A directory's entry has a copy of what is in it: for when it is not in memory.
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

    /// What a fragment's object is to have, in pieces of a bounded size; its head comes with the
    /// last.
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

    /// All directories are written: the journal begins later from now on.
    fn write_head(&mut self) {
        self.writing.parts.clear();
        let (first, sequence) = self.writing.begins;
        let safe = self.journal.safe();
        let (mut clients, mut answers) = (Vec::new(), Vec::new());
        for (client, session) in &self.sessions {
            // Others are in batches behind the beginning.
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
        // What an earlier holder named and was not read yet is named again.
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
            writers: if mutant(Mutant::WritersUnnamed) {
                Vec::new()
            } else {
                self.writers.all()
            },
            transactions: if mutant(Mutant::TransactionsUnnamed) {
                Vec::new()
            } else {
                self.transactions.all(safe)
            },
            fenced: self.all_fenced(),
        };
        let bytes = head.to_bytes();
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

    /// The journal's head says where it begins: what is before that goes.
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
        // What waited for a shorter journal.
        self.try_again = true;
    }
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
