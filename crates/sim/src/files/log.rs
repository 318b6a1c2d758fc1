//! A file to which all clients append: each record is there, complete, once and in its client's
//! order, for each read that began after the append had ended.
//!
//! Records contain their client, number and length, so a read shows by itself whether its result is
//! possible. An append counts if its client stays alive to the end and was never evicted, or has
//! synchronized the file since. Other appends may leave a partial record, as far as a client writes
//! without reporting the file's size; what follows it is not read.

use crate::rng::Rng;
use bytes::Bytes;
use nacre_fs::{Ask, CallId, Given, Outcome};
use nacre_types::{ClientId, Ino};
use nacre_wire::fs::Stamp;
use nacre_wire::msg::fs::{FsAnswer, FsCall};
use std::collections::{BTreeMap, BTreeSet};

const NAME: &str = "log";
/// Client, number, length: eight bytes each.
const HEAD: usize = 24;
const LONGEST: u64 = 9_000;
/// Most appends of all clients: a read covers all of them.
const MOST: usize = 400;
/// Concurrent calls of a client.
const CALLS: usize = 3;
const EIO: u16 = 5;

/// Identifies a record.
type Id = (u64, u64);

#[derive(Debug)]
struct Append {
    ended: Option<u64>,
    sure: bool,
}

/// What all clients appended and read.
#[derive(Debug, Default)]
pub struct Book {
    appends: BTreeMap<Id, Append>,
    /// For each read: when it began, what it found, and whether it ended at a partial record.
    reads: Vec<(u64, BTreeSet<Id>, bool)>,
    lost: BTreeSet<ClientId>,
}

impl Book {
    /// A client died or was evicted.
    pub fn on_lost(&mut self, client: ClientId) {
        self.lost.insert(client);
    }
    /// Records what a read found, from the beginning of the file.
    fn on_read(&mut self, begun: u64, data: &[u8]) {
        let (mut found, mut last) = (BTreeSet::new(), BTreeMap::new());
        let mut rest = data;
        while rest.len() >= HEAD {
            let word =
                |at: usize| u64::from_le_bytes(rest[at..at + 8].try_into().expect("eight bytes"));
            let (id, length) = ((word(0), word(8)), word(16) as usize);
            let at = data.len() - rest.len();
            assert!(
                self.appends.contains_key(&id),
                "at {at} of {NAME} is what no client appended: {id:?}"
            );
            let (record, after) = rest.split_at(length.min(rest.len()));
            let is_filled = record[HEAD..].iter().all(|byte| *byte == id.1 as u8);
            let is_whole = is_filled && record.len() == length;
            if !is_whole && self.lost.contains(&ClientId(id.0)) && !self.appends[&id].sure {
                return self.reads.push((begun, found, true));
            }
            assert!(is_filled, "{id:?} at {at} of {NAME} is not whole");
            assert_eq!(record.len(), length, "{id:?} at {at} of {NAME} ends early");
            assert!(
                last.insert(id.0, id.1).is_none_or(|before| before < id.1),
                "{id:?} at {at} is not in order"
            );
            found.insert(id);
            rest = after;
        }
        assert!(rest.is_empty(), "{NAME} ends with a part of a record");
        self.reads.push((begun, found, false));
    }
    /// Judges.
    ///
    /// # Panics
    /// With the violation.
    pub fn check(&self) {
        for (id, append) in &self.appends {
            let Some(ended) = append
                .ended
                .filter(|_| append.sure || !self.lost.contains(&ClientId(id.0)))
            else {
                continue;
            };
            for (begun, found, is_cut) in &self.reads {
                // Events at the same moment are unordered.
                assert!(
                    *is_cut || *begun <= ended || found.contains(id),
                    "{id:?}, appended by {ended}, is lacking at {begun}"
                );
            }
        }
    }
}

#[derive(Debug)]
enum Doing {
    Open(bool),
    Close,
    Append(Id),
    /// Operations that had ended by that time are sure when this has ended.
    Sync(u64),
    Read(u64),
}

/// The program of one client.
#[derive(Debug)]
pub struct Log {
    dir: Ino,
    client: ClientId,
    open: Option<(Ino, bool)>,
    asked: BTreeMap<CallId, Doing>,
    next: u64,
    evicted: bool,
}

impl Log {
    pub const fn new(client: ClientId, dir: Ino) -> Self {
        Self {
            dir,
            client,
            open: None,
            asked: BTreeMap::new(),
            next: 1,
            evicted: false,
        }
    }
    pub fn is_waiting(&self) -> bool {
        !self.asked.is_empty()
    }
    pub fn on_evicted(&mut self, book: &mut Book) {
        self.evicted = true;
        book.on_lost(self.client);
    }

    /// The next call, if any.
    pub fn next(
        &mut self,
        now: u64,
        rng: &mut Rng,
        book: &mut Book,
        begin: impl FnOnce(Ask) -> CallId,
    ) {
        let changes = self
            .asked
            .values()
            .any(|doing| matches!(doing, Doing::Open(_) | Doing::Close));
        if self.asked.len() >= CALLS || changes {
            return;
        }
        let Some((ino, write)) = self.open else {
            if self.asked.is_empty() {
                let write = rng.below(3) > 0;
                self.asked.insert(
                    begin(Ask::Names(super::data::make(self.dir, NAME, write))),
                    Doing::Open(write),
                );
            }
            return;
        };
        // Of two at a time, either may come first.
        let appends = self
            .asked
            .values()
            .any(|doing| matches!(doing, Doing::Append(_)));
        let all = Ask::Read {
            ino,
            offset: 0,
            length: (MOST as u64 * LONGEST) as u32,
        };
        let (ask, doing) = match rng.below(20) {
            0 if self.asked.is_empty() => (
                Ask::Names(FsCall::Close {
                    ino,
                    write,
                    size: 0,
                    mtime: Stamp::default(),
                }),
                Doing::Close,
            ),
            0..2 => (Ask::Sync { ino: Some(ino) }, Doing::Sync(now)),
            2..14 if write && !appends && book.appends.len() < MOST => {
                let id = (self.client.0, self.next);
                let length = HEAD as u64 + rng.below(LONGEST - HEAD as u64);
                let mut data: Vec<u8> = [id.0, id.1, length]
                    .iter()
                    .flat_map(|word| word.to_le_bytes())
                    .collect();
                data.resize(length as usize, id.1 as u8);
                book.appends.insert(
                    id,
                    Append {
                        ended: None,
                        sure: false,
                    },
                );
                self.next += 1;
                (
                    Ask::Append {
                        ino,
                        data: Bytes::from(data),
                    },
                    Doing::Append(id),
                )
            }
            14 => (all, Doing::Read(now)),
            _ => return,
        };
        self.asked.insert(begin(ask), doing);
    }

    /// Handles the end of a call; returns whether it was this program's.
    ///
    /// # Panics
    /// If the outcome is wrong.
    pub fn on_ended(&mut self, now: u64, book: &mut Book, call: CallId, outcome: &Outcome) -> bool {
        let Some(doing) = self.asked.remove(&call) else {
            return false;
        };
        match (&doing, outcome) {
            (Doing::Open(write), Ok(Given::Answer(FsAnswer::Node { node, .. }))) => {
                self.open = Some((node.inode.ino, *write));
            }
            (Doing::Close, Ok(_)) => self.open = None,
            (Doing::Append(id), Ok(Given::Done)) => {
                book.appends.get_mut(id).expect("it was noted").ended = Some(now);
            }
            (Doing::Sync(begun), Ok(Given::Done)) => {
                let own = book
                    .appends
                    .range_mut((self.client.0, 0)..=(self.client.0, u64::MAX));
                let before = |one: &Append| one.ended.is_some_and(|ended| ended <= *begun);
                own.filter(|(_, one)| before(one))
                    .for_each(|(_, one)| one.sure |= !self.evicted);
            }
            (Doing::Read(begun), Ok(Given::Data(parts))) => book.on_read(*begun, &parts.concat()),
            // It was evicted, and its caller is told: now, or when it synchronizes.
            (Doing::Close, Err(EIO)) if self.evicted => self.open = None,
            (_, Err(EIO)) if self.evicted => {}
            (doing, outcome) => panic!("{}: {doing:?} of {NAME}: {outcome:?}", self.client),
        }
        true
    }
}
