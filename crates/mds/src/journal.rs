//! The journal of a rank: batches of changes, appended to objects one after the other (CEPH-21,
//! -22).
//!
//! ```text
//!  journal.0.00000007 │ batch │ batch │ batch │     full: 4 MiB
//!  journal.0.00000008 │ batch │ …                   the end: the first that is missing, damaged or out of sequence
//!
//!  batch  | length u32 | CRC32C of the rest u32 | Batch |
//! ```
//! One append is in flight at a time; changes made meanwhile go into the next one. So a server with
//! little load answers at once, and one with high load writes less often.
//!
//! Invariants: batch numbers are consecutive; what is safe is a prefix.

use crate::change::Change;
use crate::writers::Writer;
use nacre_types::{ClientId, Ino, Instance, Rank};
use nacre_wire::frame::crc32c;
use nacre_wire::fs::Stamp;
use nacre_wire::msg::fs::FsReply;
use nacre_wire::msg::transaction::FsPart;
use nacre_wire::{Wire, wire_enum, wire_fields, wire_record};

/// Size at which an object of the journal is full, in bytes; default.
pub const OBJECT_BYTES: u64 = 4 << 20;
/// Longest batch in bytes: one operation carries it.
pub const BATCH_BYTES_MAX: usize = 16 << 20;
/// Most bytes of a head or object: what one read asks for.
pub const READ_MAX: u64 = 32 << 20;
/// A batch of this size does not wait for more: a few hundred changes.
const BATCH_BYTES_ENOUGH: u64 = 64 << 10;

/// An answer that its client may request again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The client.
    pub client: ClientId,
    /// Its instance.
    pub instance: Instance,
    /// The client has safe answers to all requests below this number.
    pub safe_below: u64,
    /// The answer.
    pub reply: FsReply,
}
wire_fields!(Answered {
    client,
    instance,
    safe_below,
    reply
});

/// A client came, or left for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The client.
    pub client: ClientId,
    /// Its instance.
    pub instance: Instance,
    /// Whether it came; otherwise it left.
    pub here: bool,
}
wire_fields!(Known {
    client,
    instance,
    here
});

/// A client is being evicted: none of its operations on objects is executed any more, and what it
/// had written may be truncated. No later holder of the rank continues its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fenced {
    /// The client.
    pub client: ClientId,
    /// This instance and all earlier ones.
    pub instance: Instance,
}
wire_fields!(Fenced { client, instance });

/// The progress of a transaction with other ranks ([`crate::transactions`]).
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "there are few of them at a time")]
pub enum Progress {
    /// A part of another rank's transaction is prepared, until that rank decides.
    Prepared {
        /// The transaction.
        transaction: Ino,
        /// The leading rank.
        leader: u16,
        /// Index of the part.
        index: u8,
        /// The time of the transaction.
        stamp: Stamp,
        /// The part.
        part: FsPart,
        /// The inode that it creates or changes; [`Ino::TOP`]: another rank has it.
        ino: Ino,
    },
    /// It is decided: executed in this batch, or aborted.
    Ended {
        /// The transaction.
        transaction: Ino,
    },
    /// This rank's own transaction is committed by this batch.
    Committed {
        /// The transaction.
        transaction: Ino,
        /// The ranks to be told.
        ranks: Vec<u16>,
    },
    /// All participants have it in their journals.
    Told {
        /// The transaction.
        transaction: Ino,
    },
}
wire_enum!(Progress {
    1 => Prepared { transaction, leader, index, stamp, part, ino },
    2 => Ended { transaction },
    3 => Committed { transaction, ranks },
    4 => Told { transaction },
});

/// Changes that become safe together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Its number.
    pub sequence: u64,
    /// The next serial to assign ([`nacre_types::Ino::given`]).
    pub serial: u64,
    /// The changes, in order.
    pub changes: Vec<Change>,
    /// Their answers.
    pub answers: Vec<Answered>,
    /// Clients that came or left.
    pub clients: Vec<Known>,
    /// Files opened for writing and closed. Applied before the changes, which say where the files
    /// are.
    pub writers: Vec<Writer>,
    /// Progress of transactions with other ranks.
    pub transactions: Vec<Progress>,
    /// Clients being evicted.
    pub fenced: Vec<Fenced>,
}
wire_record!(Batch version 1 compat 1 { sequence, serial, changes, answers, clients, writers, transactions, fenced });

impl Batch {
    /// The encoding in an object.
    #[must_use]
    pub fn frame(&self) -> Vec<u8> {
        let mut out = vec![0; 8];
        self.put(&mut out);
        let length = u32::try_from(out.len() - 8).expect("a batch is bounded");
        let crc = crc32c(&out[8..]);
        out[..4].copy_from_slice(&length.to_le_bytes());
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out
    }
}

/// The beginning of a journal after its first objects were deleted: the object `journal.RANK`,
/// written as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalHead {
    /// The first object.
    pub first: u64,
    /// Its first batch's number.
    pub sequence: u64,
    /// Lower serials have been assigned, or may have been.
    pub serial: u64,
    /// All lower objects are deleted.
    pub gone_below: u64,
    /// Clients known before the beginning.
    pub clients: Vec<Known>,
    /// Answers that are in no batch any more.
    pub answers: Vec<Answered>,
    /// Directories with files whose data is still to be removed.
    pub stale: Vec<Ino>,
    /// Files open for writing.
    pub writers: Vec<Writer>,
    /// Transactions that are not complete.
    pub transactions: Vec<Progress>,
    /// Clients being evicted.
    pub fenced: Vec<Fenced>,
}
wire_record!(JournalHead version 1 compat 1 {
    first, sequence, serial, gone_below, clients, answers, stale, writers, transactions, fenced,
});

/// The name of the object with a journal's head.
#[must_use]
pub fn head_name(rank: Rank) -> String {
    format!("journal.{:x}", rank.0)
}
/// The name of an object of a rank's journal.
#[must_use]
pub fn object_name(rank: Rank, number: u64) -> String {
    format!("journal.{:x}.{number:08x}", rank.0)
}

/// Reads an object's batches from `next` on, up to the first incomplete one. Returns whether the
/// whole object was valid.
pub fn read(mut bytes: &[u8], next: &mut u64, into: &mut Vec<Batch>) -> bool {
    while let Some((head, rest)) = bytes.split_at_checked(8) {
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let Some((body, rest)) = rest.split_at_checked(word(0) as usize) else {
            return false;
        };
        if crc32c(body) != word(4) {
            return false;
        }
        let Ok(batch) = Batch::from_bytes(body) else {
            return false;
        };
        if batch.sequence != *next {
            return false;
        }
        *next += 1;
        into.push(batch);
        bytes = rest;
    }
    bytes.is_empty()
}

/// See the module head: what to write, and where.
#[derive(Debug)]
pub struct Journal {
    /// The batch being collected.
    open: Batch,
    open_bytes: usize,
    /// The current object, its length, and its first batch.
    object: u64,
    length: u64,
    begins: u64,
    /// Size at which an object is full.
    object_bytes: u64,
    /// The append in flight: its batch's number and its length.
    under_way: Option<(u64, u64)>,
    /// All lower batches are safe.
    safe: u64,
    /// The open batch is to be written even if it is empty.
    announced: bool,
}

impl Journal {
    /// A journal that continues after what was read: with batch `next`, in the new object `object`.
    #[must_use]
    pub fn behind(next: u64, object: u64, serial: u64, object_bytes: u64) -> Self {
        Self {
            open: Batch {
                sequence: next,
                serial,
                ..Batch::default()
            },
            open_bytes: 0,
            object,
            length: 0,
            begins: next,
            object_bytes,
            under_way: None,
            safe: next,
            announced: false,
        }
    }

    /// Forces the open batch to be written: it records the first serial of this holder. Returns its
    /// number.
    pub const fn announce(&mut self) -> u64 {
        self.announced = true;
        self.open.sequence
    }
    /// The next serial to assign.
    #[must_use]
    pub const fn serial(&self) -> u64 {
        self.open.serial
    }
    /// A serial was assigned.
    pub const fn take_serial(&mut self) {
        self.take_serials(1);
    }
    /// Several were assigned.
    pub const fn take_serials(&mut self, count: u64) {
        self.open.serial += count;
    }

    /// Adds changes to the open batch. They are safe when all batches up to the returned number
    /// are.
    pub fn push(&mut self, changes: &[Change], answer: Option<Answered>) -> u64 {
        let mut measure = nacre_wire::Measure::default();
        changes
            .iter()
            .for_each(|change| change.measure(&mut measure));
        answer
            .iter()
            .for_each(|answer| answer.measure(&mut measure));
        self.open_bytes += measure.length() as usize;
        self.open.changes.extend_from_slice(changes);
        self.open.answers.extend(answer);
        self.open.sequence
    }
    /// Records that a client came or left.
    pub fn push_client(&mut self, known: Known) -> u64 {
        self.open.clients.push(known);
        self.open.sequence
    }
    /// Records that a client has opened a file for writing, written it, or closed it; batch `since`
    /// contains the opening. If that batch is still open, a close cancels it: most files are
    /// created, written and closed within one batch.
    pub fn push_writer(&mut self, writer: Writer, since: u64) {
        let is_same =
            |other: &Writer| other.client == writer.client && other.ino == writer.ino && other.here;
        // The new record supersedes it.
        if let Some(last) = self.open.writers.iter().rposition(is_same) {
            self.open.writers.remove(last);
        }
        if writer.here || since != self.open.sequence {
            self.open_bytes += nacre_wire::Measure::of("writer", &writer).length() as usize;
            self.open.writers.push(writer);
        }
    }
    /// Records that a client is being evicted.
    pub fn push_fenced(&mut self, fenced: Fenced) -> u64 {
        self.open.fenced.push(fenced);
        self.open.sequence
    }
    /// Records progress of a transaction.
    pub fn push_progress(&mut self, progress: Progress) -> u64 {
        self.open_bytes += nacre_wire::Measure::of("progress", &progress).length() as usize;
        self.open.transactions.push(progress);
        self.open.sequence
    }
    /// Whether there is nothing to append.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Batch {
            changes,
            answers,
            clients,
            writers,
            transactions,
            fenced,
            sequence: _,
            serial: _,
        } = &self.open;
        let is_empty =
            changes.is_empty() && answers.is_empty() && clients.is_empty() && writers.is_empty();
        !self.announced && is_empty && transactions.is_empty() && fenced.is_empty()
    }
    /// Whether the open batch has reached the size of an append: nothing more may be changed until
    /// it is written.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.open_bytes >= BATCH_BYTES_MAX / 2
    }
    /// Whether appending the open batch is worthwhile: another change would hardly make it cheaper.
    #[must_use]
    pub fn has_enough(&self) -> bool {
        self.open_bytes as u64 >= BATCH_BYTES_ENOUGH.min(self.object_bytes)
    }
    /// All lower batches are safe.
    #[must_use]
    pub const fn safe(&self) -> u64 {
        self.safe
    }
    /// The current object.
    #[must_use]
    pub const fn object(&self) -> u64 {
        self.object
    }
    /// The first batch of the current object.
    #[must_use]
    pub const fn object_begins(&self) -> u64 {
        self.begins
    }
    /// Length of the current object in bytes.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.length
    }
    /// Starts a new object. No append may be in flight.
    pub const fn begin_object(&mut self) {
        if self.length > 0 {
            self.object += 1;
            (self.length, self.begins) = (0, self.open.sequence);
        }
    }
    /// The number of the open batch.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.open.sequence
    }
    /// Everything pushed so far is safe when all batches below this number are.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.open.sequence + u64::from(!self.is_empty())
    }
    /// Whether an append is in flight.
    #[must_use]
    pub const fn is_appending(&self) -> bool {
        self.under_way.is_some()
    }
    /// Whether nothing is open or in flight.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.under_way.is_none() && self.is_empty()
    }

    /// The next append, if one is due: the object's number and the bytes. Its end must be reported.
    pub fn next_append(&mut self) -> Option<(u64, Vec<u8>)> {
        if self.under_way.is_some() || self.is_empty() {
            return None;
        }
        if self.length >= self.object_bytes {
            self.begin_object();
        }
        let (sequence, serial) = (self.open.sequence, self.open.serial);
        let next = Batch {
            sequence: sequence + 1,
            serial,
            ..Batch::default()
        };
        let bytes = std::mem::replace(&mut self.open, next).frame();
        (self.open_bytes, self.announced) = (0, false);
        self.under_way = Some((sequence, bytes.len() as u64));
        Some((self.object, bytes))
    }

    /// The append in flight is durable.
    ///
    /// # Panics
    /// If there is none.
    pub fn on_appended(&mut self) {
        let (sequence, bytes) = self.under_way.take().expect("an append was begun");
        self.length += bytes;
        self.safe = sequence + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(n: u64) -> Change {
        Change::Begin { dir: Ino(n) }
    }

    /// Changes made during an append go into the next one together.
    #[test]
    fn one_append_is_under_way() {
        let mut journal = Journal::behind(5, 1, 100, OBJECT_BYTES);
        assert!(journal.next_append().is_none(), "there is nothing to say");
        assert_eq!(journal.push(&[change(1)], None), 5);
        let (object, first) = journal.next_append().expect("it is due");
        assert_eq!(
            (
                object,
                journal.push(&[change(2)], None),
                journal.push(&[change(3)], None)
            ),
            (1, 6, 6)
        );
        assert!(journal.next_append().is_none(), "one at a time");
        assert_eq!(journal.safe(), 5);
        journal.on_appended();
        assert_eq!((journal.safe(), journal.is_idle()), (6, false));
        let (_, second) = journal.next_append().expect("it is due");
        journal.on_appended();
        assert!(journal.is_idle());
        let (mut next, mut batches) = (5, Vec::new());
        assert!(read(&[first, second].concat(), &mut next, &mut batches));
        let changes: Vec<_> = batches.into_iter().map(|batch| batch.changes).collect();
        assert_eq!(
            (next, changes),
            (7, vec![vec![change(1)], vec![change(2), change(3)]])
        );
    }

    /// Wherever the journal is cut or damaged, everything written before that is read.
    #[test]
    fn a_journal_ends_where_it_is_not_whole() {
        let mut journal = Journal::behind(1, 1, 100, OBJECT_BYTES);
        let mut frames = Vec::new();
        for n in 0..4 {
            journal.push(&[change(n)], None);
            frames.push(journal.next_append().expect("it is due").1);
            journal.on_appended();
        }
        let whole = frames.concat();
        let count = |bytes: &[u8]| {
            let (mut next, mut batches) = (1, Vec::new());
            let good = read(bytes, &mut next, &mut batches);
            assert_eq!(next, 1 + batches.len() as u64);
            (good, batches.len())
        };
        let ends: Vec<usize> = frames
            .iter()
            .scan(0, |at, frame| {
                Some(std::mem::replace(at, *at + frame.len()))
            })
            .collect();
        for at in 0..whole.len() {
            let before = ends.iter().filter(|end| **end <= at).count() - 1;
            assert_eq!(
                count(&whole[..at]),
                (ends.contains(&at), before),
                "cut at {at}"
            );
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            assert_eq!(count(&damaged), (false, before), "damaged at {at}");
        }
        assert_eq!(count(&whole), (true, 4));
        assert_eq!(count(&frames[1]), (false, 0), "of another place");
    }

    #[test]
    fn an_object_that_is_full_is_followed_by_the_next() {
        let mut journal = Journal::behind(1, 7, 100, OBJECT_BYTES);
        let (mut objects, mut bytes) = (Vec::new(), 0);
        let many: Vec<Change> = (0..20_000).map(change).collect();
        for _ in 0..40 {
            journal.push(&many, None);
            let (object, frame) = journal.next_append().expect("it is due");
            bytes += frame.len() as u64;
            journal.on_appended();
            objects.push(object);
        }
        let last = *objects.last().expect("some");
        assert!(
            objects.is_sorted() && objects[0] == 7 && last >= 7 + bytes / (2 * OBJECT_BYTES),
            "{objects:?}"
        );
    }
}
