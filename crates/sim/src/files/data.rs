//! Files that several clients write and read at once: each block is a register, and its history
//! must be linearizable.
//!
//! Each write fills a block, or two blocks of one object, with a unique value; reads cover whole
//! blocks. One file consists of records of two blocks, each block in an object of its own. A record
//! is always written as a whole, and no read may see halves of two writes, unless a writer's client
//! was lost: it may have died in between. Blocks beyond the end known to a reader count as never
//! written, so sizes are judged as well. Before some reads the client asks for the file's size:
//! both calls are one operation. Such files are never truncated and grow all the time.
//!
//! A write counts if its client stays alive to the end, or has synchronized the file since. A write
//! of a client that died or was evicted may have been executed or not, and only that client has
//! seen its own unsynchronized data. Reads of a client before it was told that it was evicted are
//! not judged.

use crate::rng::Rng;
use bytes::Bytes;
use nacre_fs::{Ask, CallId, Given, Outcome};
use nacre_history::{Kind, Record};
use nacre_types::{ClientId, Ino, Name};
use nacre_wire::fs::{FileKind, Stamp};
use nacre_wire::msg::fs::{FsAnswer, FsCall};
use std::collections::{BTreeMap, BTreeSet};

/// The mode that marks such files.
pub const MODE: u16 = 0o640;
const FILES: usize = 3;
const BLOCK: u64 = 4096;
/// The file with records: each record starts in the last block of an object.
const RECORDS: usize = 2;
const RECORD: u64 = 2;
/// Blocks of a file at first, and blocks added per second.
const MORE: u64 = 2;
const SECOND: u64 = 1_000_000_000;
/// Concurrent calls of a client.
const CALLS: usize = 4;
const EIO: u16 = 5;
const ENOSPC: u16 = 28;

/// A write or read of some blocks.
#[derive(Debug)]
struct Entry {
    client: ClientId,
    file: usize,
    first: u64,
    /// What was written to or read from each of them.
    values: Vec<Option<u64>>,
    is_write: bool,
    begun: u64,
    /// `None`: it may have been executed, may be executed later, or never.
    ended: Option<u64>,
    /// Whether nothing can undo it any more.
    sure: bool,
    /// Whether it is not judged.
    void: bool,
}

/// What all clients wrote and read.
#[derive(Debug, Default)]
pub struct Diary {
    entries: Vec<Entry>,
    last_value: u64,
}

impl Diary {
    fn begin(
        &mut self,
        now: u64,
        client: ClientId,
        file: usize,
        first: u64,
        write: Option<(u64, u64)>,
    ) -> usize {
        let values = write.map(|(value, count)| vec![Some(value); count as usize]);
        self.entries.push(Entry {
            client,
            file,
            first,
            is_write: values.is_some(),
            values: values.unwrap_or_default(),
            begun: now,
            ended: None,
            sure: false,
            void: false,
        });
        self.entries.len() - 1
    }

    /// A client was told the file's size: blocks beyond it were not written when it asked.
    fn looked(&mut self, now: u64, client: ClientId, file: usize, reading: Reading, size: u64) {
        let first = reading.first.max(size.div_ceil(BLOCK));
        let count = (reading.first + reading.count).saturating_sub(first);
        let begun = self.entries[reading.entry].begun;
        let entry = self.begin(begun, client, file, first, None);
        (self.entries[entry].values, self.entries[entry].ended) =
            (vec![None; count as usize], Some(now));
    }

    /// A client died, or was told that it was evicted (`evicted`).
    pub fn on_lost(&mut self, client: ClientId, evicted: bool) {
        let own: Vec<u64> = self
            .doubtful(client)
            .flat_map(|entry| entry.values.iter().copied().flatten())
            .collect();
        for entry in self
            .entries
            .iter_mut()
            .filter(|entry| entry.client == client && !entry.sure)
        {
            if entry.is_write {
                entry.ended = None;
            } else {
                entry.void |= evicted
                    || entry
                        .values
                        .iter()
                        .flatten()
                        .any(|value| own.contains(value));
            }
        }
    }
    /// For a write of a lost client, neither half is known to have been written.
    fn check_records(&self) {
        let of_records = || {
            self.entries
                .iter()
                .filter(|entry| entry.file == RECORDS && !entry.void)
        };
        let lost = of_records().filter(|entry| entry.is_write && entry.ended.is_none());
        let lost: BTreeSet<u64> = lost
            .flat_map(|entry| entry.values.iter().copied().flatten())
            .collect();
        for entry in of_records().filter(|entry| !entry.is_write && entry.ended.is_some()) {
            for (first, halves) in records(entry) {
                let is_whole = halves[0] == halves[1]
                    || halves.iter().flatten().any(|value| lost.contains(value));
                assert!(
                    is_whole,
                    "{} read halves of two writes at block {first}: {halves:?}",
                    entry.client
                );
            }
        }
    }
    fn doubtful(&self, client: ClientId) -> impl Iterator<Item = &Entry> {
        self.entries
            .iter()
            .filter(move |entry| entry.client == client && entry.is_write && !entry.sure)
    }

    /// Judges each block, and whether records were read as a whole.
    ///
    /// # Panics
    /// With the violation.
    pub fn check(&self) {
        self.check_records();
        let entries = self
            .entries
            .iter()
            .filter(|entry| !entry.void && (entry.is_write || entry.ended.is_some()));
        let record = |(entry, block, value): (&Entry, u64, Option<u64>)| Record {
            client: entry.client.0,
            op: if entry.is_write {
                Kind::Write
            } else {
                Kind::Read
            },
            key: format!("{}/{block}", entry.file),
            value: value.filter(|_| entry.is_write),
            expect: None,
            invoke_ns: entry.begun,
            return_ns: entry.ended,
            result: (!entry.is_write).then_some(nacre_history::record::Outcome::Value(value)),
            unknown: entry.ended.is_none(),
            fail: false,
        };
        let blocks = entries.flat_map(|entry| {
            (entry.first..)
                .zip(&entry.values)
                .map(move |(at, value)| (entry, at, *value))
        });
        let history: Vec<Record> = blocks.map(record).collect();
        if let Err(violations) = nacre_history::check(&history) {
            // A block with too many concurrent unknown writes proves nothing.
            let bad: Vec<_> = violations
                .iter()
                .filter(|one| !one.undecided)
                .map(ToString::to_string)
                .collect();
            assert!(bad.is_empty(), "files that are shared: {}", bad.join("\n"));
        }
    }
}

/// The records of which a read covered both halves.
fn records(entry: &Entry) -> impl Iterator<Item = (u64, [Option<u64>; 2])> {
    let halves = (entry.first..).zip(entry.values.windows(RECORD as usize));
    halves
        .filter(|(first, _)| first % RECORD == 1)
        .map(|(first, halves)| (first, [halves[0], halves[1]]))
}

#[derive(Debug)]
enum Doing {
    /// Whether for writing.
    Open(bool),
    Close,
    /// Operations that had ended by that time are sure when this has ended.
    Sync(u64),
    /// An entry of the diary.
    Write(usize),
    Read(Reading),
    /// Asks for the file's size in order to read.
    Look(Reading),
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    entry: usize,
    first: u64,
    count: u64,
}

/// The program of one client.
#[derive(Debug)]
pub struct Data {
    /// The directories of the files, in order.
    dirs: Vec<Ino>,
    client: ClientId,
    /// The open files, and whether each is open for writing.
    open: [Option<(Ino, bool)>; FILES],
    asked: BTreeMap<CallId, (usize, Doing)>,
    /// The next read, for which the client has asked for the file's size.
    looked: Option<(usize, Reading)>,
    /// It was evicted: unsynchronized data causes one error.
    evicted: bool,
    /// Whether the cluster is full at times.
    pub fills: bool,
}

impl Data {
    pub fn new(client: ClientId, dirs: Vec<Ino>) -> Self {
        Self {
            dirs,
            client,
            open: [None; FILES],
            asked: BTreeMap::new(),
            looked: None,
            evicted: false,
            fills: false,
        }
    }
    pub fn is_waiting(&self) -> bool {
        !self.asked.is_empty()
    }
    pub fn on_evicted(&mut self, diary: &mut Diary) {
        self.evicted = true;
        diary.on_lost(self.client, true);
    }

    /// The next call, if any.
    pub fn next(
        &mut self,
        now: u64,
        rng: &mut Rng,
        diary: &mut Diary,
        begin: impl FnOnce(Ask) -> CallId,
    ) {
        if let Some((file, reading)) = self.looked.take() {
            let (ino, _) = self.open[file].expect("it is not closed before");
            self.asked
                .insert(begin(read(ino, reading)), (file, Doing::Read(reading)));
            return;
        }
        let file = rng.below(FILES as u64) as usize;
        let of_file = || self.asked.values().filter(|(other, _)| *other == file);
        let changes = of_file().any(|(_, doing)| matches!(doing, Doing::Open(_) | Doing::Close));
        if self.asked.len() >= CALLS || changes {
            return;
        }
        let is_used = of_file().next().is_some();
        let blocks = MORE * (1 + now / SECOND);
        let mut first = blocks.saturating_sub(rng.between(1, 6));
        if file == RECORDS {
            first |= 1;
        }
        let Some((ino, write)) = self.open[file] else {
            // Calls made while it was open may still be in flight. Other clients have it alone
            // occasionally.
            if !is_used && rng.one_in(8) {
                let write = rng.one_in(2);
                self.asked.insert(
                    begin(Ask::Names(make(
                        self.dirs[file % self.dirs.len()],
                        &format!("data.{file}"),
                        write,
                    ))),
                    (file, Doing::Open(write)),
                );
            }
            return;
        };
        let (ask, doing) = match rng.below(20) {
            0..2 if !is_used => (
                Ask::Names(FsCall::Close {
                    ino,
                    write,
                    size: 0,
                    mtime: Stamp::default(),
                }),
                Doing::Close,
            ),
            0..3 => (Ask::Sync { ino: Some(ino) }, Doing::Sync(now)),
            3..11 if write => {
                diary.last_value += 1;
                let count = if file == RECORDS {
                    RECORD
                } else if first.is_multiple_of(2) {
                    rng.between(1, 2)
                } else {
                    1
                };
                let value = diary.last_value;
                let data = Bytes::from(value.to_le_bytes().repeat((count * BLOCK / 8) as usize));
                let entry = diary.begin(now, self.client, file, first, Some((value, count)));
                (
                    Ask::Write {
                        ino,
                        offset: first * BLOCK,
                        data,
                    },
                    Doing::Write(entry),
                )
            }
            _ => {
                let count = rng.between(1, 4);
                let entry = diary.begin(now, self.client, file, first, None);
                let reading = Reading {
                    entry,
                    first,
                    count,
                };
                if rng.one_in(2) {
                    (read(ino, reading), Doing::Read(reading))
                } else {
                    (Ask::Names(FsCall::Stat { ino }), Doing::Look(reading))
                }
            }
        };
        self.asked.insert(begin(ask), (file, doing));
    }

    /// Handles the end of a call; returns whether it was this program's.
    ///
    /// # Panics
    /// If the outcome is wrong.
    pub fn on_ended(
        &mut self,
        now: u64,
        diary: &mut Diary,
        call: CallId,
        outcome: &Outcome,
    ) -> bool {
        let Some((file, doing)) = self.asked.remove(&call) else {
            return false;
        };
        match (&doing, outcome) {
            (Doing::Open(write), Ok(Given::Answer(FsAnswer::Node { node, .. }))) => {
                self.open[file] = Some((node.inode.ino, *write));
            }
            (Doing::Close, Ok(_)) => self.open[file] = None,
            (Doing::Write(entry), Ok(Given::Done)) => diary.entries[*entry].ended = Some(now),
            (Doing::Sync(begun), Ok(Given::Done)) => {
                let own = diary
                    .entries
                    .iter_mut()
                    .filter(|one| one.client == self.client && one.file == file);
                let before =
                    |one: &Entry| one.is_write && one.ended.is_some_and(|ended| ended <= *begun);
                own.filter(|one| before(one))
                    .for_each(|one| one.sure = true);
            }
            (Doing::Look(reading), Ok(Given::Answer(FsAnswer::Node { node, .. }))) => {
                diary.looked(now, self.client, file, *reading, node.inode.size);
                // One at a time; another one is dropped.
                self.looked.get_or_insert((file, *reading));
            }
            (Doing::Read(Reading { entry, count, .. }), Ok(Given::Data(parts))) => {
                let data = parts.concat();
                assert!(
                    (data.len() as u64).is_multiple_of(BLOCK),
                    "{} read {} bytes of file {file}",
                    self.client,
                    data.len()
                );
                let entry = &mut diary.entries[*entry];
                entry.values = data.chunks(BLOCK as usize).map(value).collect();
                entry.values.resize(*count as usize, None);
                entry.ended = Some(now);
            }
            // It was evicted, and its caller is told: now, or when it synchronizes.
            (Doing::Close, Err(EIO)) if self.evicted => self.open[file] = None,
            (Doing::Write(_) | Doing::Read(_) | Doing::Sync(_) | Doing::Open(_), Err(EIO))
                if self.evicted => {}
            (Doing::Write(_), Err(ENOSPC)) if self.fills => {}
            // Some of its earlier writes are lost.
            (Doing::Sync(_) | Doing::Close, Err(ENOSPC)) if self.fills => {
                diary.on_lost(self.client, false);
                if matches!(doing, Doing::Close) {
                    self.open[file] = None;
                }
            }
            (Doing::Open(_), Err(ENOSPC)) if self.fills => {}
            (doing, outcome) => panic!("{}: {doing:?} of file {file}: {outcome:?}", self.client),
        }
        true
    }
}

fn read(ino: Ino, Reading { first, count, .. }: Reading) -> Ask {
    Ask::Read {
        ino,
        offset: first * BLOCK,
        length: (count * BLOCK) as u32,
    }
}

/// Opens a file, and creates it if it does not exist.
pub fn make(dir: Ino, name: &str, write: bool) -> FsCall {
    FsCall::Make {
        dir,
        name: Name::from(name),
        kind: FileKind::File {},
        mode: MODE,
        umask: 0,
        uid: 1,
        gid: 1,
        target: Bytes::new(),
        device: 0,
        exclusive: false,
        open: true,
        write,
    }
}

/// The value that fills a block; `None`: never written.
fn value(block: &[u8]) -> Option<u64> {
    let mut words = block
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
    let first = words.next().expect("a block has bytes");
    assert!(
        words.all(|word| word == first),
        "a block has more than one write's bytes"
    );
    Some(first).filter(|first| *first != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANNA: ClientId = ClientId(1);
    const BERT: ClientId = ClientId(2);

    fn entry(
        diary: &mut Diary,
        client: ClientId,
        (begun, ended): (u64, u64),
        is_write: bool,
        value: Option<u64>,
    ) -> usize {
        let entry = diary.begin(
            begun,
            client,
            0,
            0,
            is_write.then_some((value.unwrap_or(0), 1)),
        );
        diary.entries[entry].values = vec![value];
        diary.entries[entry].ended = Some(ended);
        entry
    }
    fn passes(diary: &Diary) -> bool {
        std::panic::catch_unwind(|| diary.check()).is_ok()
    }

    #[test]
    fn a_read_that_ends_short_of_what_was_written_is_wrong() {
        let mut diary = Diary::default();
        entry(&mut diary, ANNA, (0, 10), true, Some(1));
        let read = entry(&mut diary, BERT, (5, 15), false, None);
        assert!(passes(&diary), "at one time");
        diary.entries[read].begun = 11;
        assert!(!passes(&diary));
        diary.on_lost(ANNA, false);
        assert!(
            passes(&diary),
            "its writer died, and had not synchronized it"
        );
        diary.entries[0].ended = Some(10);
        diary.entries[0].sure = true;
        diary.on_lost(ANNA, false);
        assert!(!passes(&diary), "it had");
    }

    #[test]
    fn a_record_is_read_as_a_whole() {
        let mut diary = Diary::default();
        for (client, value, time) in [(ANNA, 1, 0), (BERT, 2, 20)] {
            let entry = diary.begin(time, client, RECORDS, 3, Some((value, RECORD)));
            diary.entries[entry].ended = Some(time + 20);
        }
        let read = diary.begin(25, ANNA, RECORDS, 2, None);
        diary.entries[read].ended = Some(35);
        for (halves, is_right) in [
            ([1, 1], true),
            ([2, 2], true),
            ([1, 2], false),
            ([2, 1], false),
        ] {
            diary.entries[read].values = [None].into_iter().chain(halves.map(Some)).collect();
            assert_eq!(passes(&diary), is_right, "{halves:?}");
        }
        diary.entries[read].values = vec![None, Some(1)];
        assert!(passes(&diary), "it read one half");
        diary.entries[read].values = vec![None, Some(1), Some(2)];
        diary.on_lost(BERT, false);
        assert!(passes(&diary), "its writer died");
    }

    #[test]
    fn what_a_lost_client_read_of_others_counts() {
        let mut diary = Diary::default();
        entry(&mut diary, ANNA, (0, 10), true, Some(1));
        entry(&mut diary, ANNA, (20, 30), false, Some(1));
        entry(&mut diary, BERT, (40, 50), false, None);
        assert!(!passes(&diary));
        diary.on_lost(ANNA, false);
        assert!(passes(&diary), "only its writer saw it");
        entry(&mut diary, BERT, (60, 70), true, Some(2));
        entry(&mut diary, ANNA, (80, 90), false, Some(3));
        assert!(!passes(&diary), "no one wrote that");
    }
}
