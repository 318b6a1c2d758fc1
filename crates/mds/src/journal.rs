//! The journal of a rank: batches of changes, appended to objects one after the other (CEPH-21,
//! -22).
//!
//! ```text
//!  journal.0.00000007 │ batch │ batch │ batch │     full: 4 MiB
//!  journal.0.00000008 │ batch │ …                   the end: the first that is missing, damaged or out of sequence
//!
//!  batch  | length u32 | CRC32C of the rest u32 | Batch |
//! ```
//! One append is under way at a time; what is changed meanwhile goes with the next. So a server
//! with little to do answers at once, and one with much to do writes seldom.
//!
//! Invariants: a batch's number is that of the one before it and one; what is safe is a prefix.

use crate::change::Change;
use crate::writers::Writer;
use nacre_types::{ClientId, Ino, Instance, Rank};
use nacre_wire::frame::crc32c;
use nacre_wire::fs::Stamp;
use nacre_wire::msg::fs::FsReply;
use nacre_wire::msg::transaction::FsPart;
use nacre_wire::{Wire, wire_enum, wire_fields, wire_record};

/// An object of the journal is full from here on, in bytes, unless settings say otherwise.
pub const OBJECT_BYTES: u64 = 4 << 20;
/// Longest batch in bytes: one operation carries it.
pub const BATCH_BYTES_MAX: usize = 16 << 20;
/// A head, or an object, is no longer than this, in bytes: what one read asks for.
pub const READ_MAX: u64 = 32 << 20;
/// A batch of so many bytes waits for no more: some hundred changes.
const BATCH_BYTES_ENOUGH: u64 = 64 << 10;

/// An answer that its client may ask for again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Whose.
    pub client: ClientId,
    /// In which life.
    pub instance: Instance,
    /// The client has safe answers to all requests below.
    pub safe_below: u64,
    /// It.
    pub reply: FsReply,
}
wire_fields!(Answered {
    client,
    instance,
    safe_below,
    reply
});

/// A client came, or went for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Who.
    pub client: ClientId,
    /// In which life.
    pub instance: Instance,
    /// It is a client from here on; else none any more.
    pub here: bool,
}
wire_fields!(Known {
    client,
    instance,
    here
});

/// A client is being evicted: nothing that it does with objects is executed any more, and what it
/// had written may be cut off. No later holder of the rank goes on with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fenced {
    /// Which.
    pub client: ClientId,
    /// This instance and all before it.
    pub instance: Instance,
}
wire_fields!(Fenced { client, instance });

/// How far a transaction with other ranks has come ([`crate::transactions`]).
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "there are few of them at a time")]
pub enum Progress {
    /// A part of another rank's transaction can be done, until that rank decides.
    Prepared {
        /// Which transaction.
        transaction: Ino,
        /// Whose.
        leader: u16,
        /// Which of its parts.
        index: u8,
        /// When it all happens.
        stamp: Stamp,
        /// What it is to do.
        part: FsPart,
        /// The inode that it makes or changes; [`Ino::TOP`]: another rank has that.
        ino: Ino,
    },
    /// It is decided, and done in this batch, or never.
    Ended {
        /// Which.
        transaction: Ino,
    },
    /// This rank's own: it happens, says this batch.
    Committed {
        /// Which.
        transaction: Ino,
        /// Who has to be told.
        ranks: Vec<u16>,
    },
    /// All of them have it in their journals.
    Told {
        /// Which.
        transaction: Ino,
    },
}
wire_enum!(Progress {
    1 => Prepared { transaction, leader, index, stamp, part, ino },
    2 => Ended { transaction },
    3 => Committed { transaction, ranks },
    4 => Told { transaction },
});

/// What became safe together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Its number.
    pub sequence: u64,
    /// The next serial to be given ([`nacre_types::Ino::given`]).
    pub serial: u64,
    /// In order.
    pub changes: Vec<Change>,
    /// What was answered for them.
    pub answers: Vec<Answered>,
    /// Who came and went.
    pub clients: Vec<Known>,
    /// Who opened files for writing, and closed them. It comes before the changes: these say where
    /// the files are.
    pub writers: Vec<Writer>,
    /// What was prepared and decided with other ranks.
    pub transactions: Vec<Progress>,
    /// Who is being evicted.
    pub fenced: Vec<Fenced>,
}
wire_record!(Batch version 1 compat 1 { sequence, serial, changes, answers, clients, writers, transactions, fenced });

impl Batch {
    /// As it stands in an object.
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

/// What a journal begins with, once its first objects are gone: the object `journal.RANK`, written
/// as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalHead {
    /// The first object.
    pub first: u64,
    /// Its first batch's number.
    pub sequence: u64,
    /// Serials below have been given, or may have been.
    pub serial: u64,
    /// All objects below are gone.
    pub gone_below: u64,
    /// Clients that came before that.
    pub clients: Vec<Known>,
    /// Answers that are in no batch any more.
    pub answers: Vec<Answered>,
    /// Directories with files of which something is still to be removed.
    pub stale: Vec<Ino>,
    /// Who has files open for writing.
    pub writers: Vec<Writer>,
    /// Transactions that are not over.
    pub transactions: Vec<Progress>,
    /// Who is being evicted.
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

/// Reads an object's batches from `next` on, up to the first that is not whole. Says whether all of
/// the object was good.
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

/// See the module head: what is to be written, and where.
#[derive(Debug)]
pub struct Journal {
    /// The batch that is being put together.
    open: Batch,
    open_bytes: usize,
    /// The object that is written to, its length, and its first batch.
    object: u64,
    length: u64,
    begins: u64,
    /// An object is full from here on.
    object_bytes: u64,
    /// The append under way: its batch's number, and its bytes.
    under_way: Option<(u64, u64)>,
    /// All batches below are safe.
    safe: u64,
    /// The open batch is to be written even if there is nothing in it.
    announced: bool,
}

impl Journal {
    /// One that goes on behind what was read: with batch `next`, in object `object`, a new one.
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

    /// The open batch is written in any case: it says from where on this holder gives serials. Its
    /// number.
    pub const fn announce(&mut self) -> u64 {
        self.announced = true;
        self.open.sequence
    }
    /// The next serial to be given.
    #[must_use]
    pub const fn serial(&self) -> u64 {
        self.open.serial
    }
    /// A serial was given.
    pub const fn take_serial(&mut self) {
        self.take_serials(1);
    }
    /// So many were.
    pub const fn take_serials(&mut self, count: u64) {
        self.open.serial += count;
    }

    /// Puts changes into the open batch. They are safe when all batches up to the number that is
    /// returned are.
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
    /// A client came or went.
    pub fn push_client(&mut self, known: Known) -> u64 {
        self.open.clients.push(known);
        self.open.sequence
    }
    /// A client has opened a file for writing, written it, or closed it; batch `since` says the
    /// first. If that has not left yet, a close takes it back: most files are made, written and
    /// closed in one batch.
    pub fn push_writer(&mut self, writer: Writer, since: u64) {
        let is_same =
            |other: &Writer| other.client == writer.client && other.ino == writer.ino && other.here;
        // What is said now says it all.
        if let Some(last) = self.open.writers.iter().rposition(is_same) {
            self.open.writers.remove(last);
        }
        if writer.here || since != self.open.sequence {
            self.open_bytes += nacre_wire::Measure::of("writer", &writer).length() as usize;
            self.open.writers.push(writer);
        }
    }
    /// A client is being evicted.
    pub fn push_fenced(&mut self, fenced: Fenced) -> u64 {
        self.open.fenced.push(fenced);
        self.open.sequence
    }
    /// Something about a transaction.
    pub fn push_progress(&mut self, progress: Progress) -> u64 {
        self.open_bytes += nacre_wire::Measure::of("progress", &progress).length() as usize;
        self.open.transactions.push(progress);
        self.open.sequence
    }
    /// Whether there is nothing for another append.
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
    /// Whether the open batch has as much as one append may carry: nothing more is to be changed
    /// until it has left.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.open_bytes >= BATCH_BYTES_MAX / 2
    }
    /// Whether an append of the open batch is worth it: another change would make it little
    /// cheaper.
    #[must_use]
    pub fn has_enough(&self) -> bool {
        self.open_bytes as u64 >= BATCH_BYTES_ENOUGH.min(self.object_bytes)
    }
    /// All batches below are safe.
    #[must_use]
    pub const fn safe(&self) -> u64 {
        self.safe
    }
    /// The object that is written to.
    #[must_use]
    pub const fn object(&self) -> u64 {
        self.object
    }
    /// The first batch of the object that is written to.
    #[must_use]
    pub const fn object_begins(&self) -> u64 {
        self.begins
    }
    /// How long the object is that is written to, in bytes.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.length
    }
    /// What comes next goes into an object of its own. Nothing is under way.
    pub const fn begin_object(&mut self) {
        if self.length > 0 {
            self.object += 1;
            (self.length, self.begins) = (0, self.open.sequence);
        }
    }
    /// The number of the batch that is being put together.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.open.sequence
    }
    /// All that was pushed so far is safe when all batches below this one are.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.open.sequence + u64::from(!self.is_empty())
    }
    /// Whether an append is under way.
    #[must_use]
    pub const fn is_appending(&self) -> bool {
        self.under_way.is_some()
    }
    /// Whether nothing is open or under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.under_way.is_none() && self.is_empty()
    }

    /// The next append, if one is due: the object's number, and the bytes. To be told of its end.
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

    /// The append under way is durable.
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

    /// What is changed during an append goes with the next, in one.
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

    /// Wherever it is cut off or damaged, what is read is what was written before that.
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
