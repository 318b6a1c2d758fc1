//! A file that several clients write with lazy I/O, each in its own bytes of the same blocks; they
//! decide themselves when others are to see their writes (CEPH-11).
//!
//! ```text
//!  write ─▶ Propagate begins ─▶ ends        the writer: from here on others can see it
//!                                 └─▶ Synchronize begins ─▶ ends ─▶ read begins: it must be seen
//! ```
//! A block has cells of 64 bytes. Each incarnation of a client has a lane: one cell of each block,
//! which only it writes, with a larger value each time. So a read shows how new each cell is. A
//! cell must be at least as new as what its writer had propagated before the reader last began to
//! synchronize that block; a reader without lazy I/O sees what was propagated before the read
//! began; and a lane's own client sees what it wrote. At the end the objects contain what was
//! propagated.
//!
//! A write counts if its client stays alive to the end and was never evicted, or has synchronized
//! the file with `fsync` since. Reads of a client before it was told that it was evicted are not
//! judged.
//!
//! `statlite` is used too: everything but size and times must be exact, and the file must once have
//! had that size.

use super::data::{MODE, make};
use super::world::layout;
use crate::rng::Rng;
use bytes::Bytes;
use nacre_conformance::memory::Memory;
use nacre_fs::{Ask, CallId, Given, Outcome};
use nacre_types::{ClientId, Ino, Name};
use nacre_wire::fs::{Stamp, data_name};
use nacre_wire::msg::fs::{FsAnswer, FsCall};
use std::collections::BTreeMap;

const NAME: &str = "lazy";
const BLOCK: u64 = 4096;
/// Blocks of the file: two per object.
const BLOCKS: u64 = 6;
const CELL: u64 = 64;
const LANES: u64 = BLOCK / CELL;
/// Concurrent calls of a client.
const CALLS: usize = 3;
const EIO: u16 = 5;

/// A cell: its lane and its block.
type Cell = (u64, u64);

/// A write to a cell.
#[derive(Debug)]
struct Write {
    value: u64,
    begun: u64,
    ended: Option<u64>,
    /// When others could see it.
    propagated: Option<u64>,
    /// Whether it was in the journal, too.
    sure: bool,
}

/// The value that a read found in a cell, and the least value that it must have.
#[derive(Debug)]
struct Read {
    reader: u64,
    cell: Cell,
    value: u64,
    begun: u64,
    ended: u64,
    /// Everything propagated before this time must be seen.
    synchronized: u64,
}

/// What all clients wrote and read.
#[derive(Debug, Default)]
pub struct Slate {
    ino: Option<Ino>,
    cells: BTreeMap<Cell, Vec<Write>>,
    reads: Vec<Read>,
    /// The client of each lane, and whether it died or was evicted.
    lanes: Vec<(ClientId, bool)>,
    last_value: u64,
    /// The largest end of a write.
    most: u64,
}

impl Slate {
    fn new_lane(&mut self, client: ClientId) -> u64 {
        self.lanes.push((client, false));
        self.lanes.len() as u64 - 1
    }
    /// A client died, or was told that it was evicted (`evicted`).
    pub fn on_lost(&mut self, client: ClientId, evicted: bool) {
        for (_, lost) in self.lanes.iter_mut().filter(|(of, _)| *of == client) {
            *lost = true;
        }
        if evicted {
            let lanes = &self.lanes;
            self.reads
                .retain(|read| lanes[read.reader as usize].0 != client);
        }
    }
    fn is_lost(&self, lane: u64) -> bool {
        self.lanes[lane as usize].1
    }
    /// Writes of a lane in these blocks that had ended by `begun` are visible to others.
    fn propagated(&mut self, lane: u64, blocks: (u64, u64), begun: u64, now: u64, sure: bool) {
        for (_, writes) in self.cells.range_mut((lane, blocks.0)..(lane, blocks.1)) {
            for write in writes
                .iter_mut()
                .filter(|write| write.ended.is_some_and(|ended| ended <= begun))
            {
                write.propagated.get_or_insert(now);
                write.sure |= sure;
            }
        }
    }
    /// The least value of a cell; `own`: for its client's own read.
    fn least(&self, cell: Cell, own: Option<u64>, synchronized: u64) -> u64 {
        let is_lost = self.is_lost(cell.0);
        let must = |write: &&Write| {
            let is_seen =
                write.propagated.is_some_and(|at| at < synchronized) && (write.sure || !is_lost);
            // An end and a beginning at the same moment are unordered.
            is_seen || own.is_some_and(|begun| write.ended.is_some_and(|ended| ended < begun))
        };
        self.cells
            .get(&cell)
            .into_iter()
            .flatten()
            .filter(must)
            .map(|write| write.value)
            .max()
            .unwrap_or(0)
    }
    /// Judges.
    ///
    /// # Panics
    /// With the violation.
    pub fn check(&self, memory: &Memory) {
        for read in &self.reads {
            let Read {
                reader,
                cell,
                value,
                begun,
                ended,
                synchronized,
            } = read;
            let writes = self.cells.get(cell).map_or(&[][..], Vec::as_slice);
            let is_written = *value == 0
                || writes
                    .iter()
                    .any(|write| write.value == *value && write.begun <= *ended);
            assert!(is_written, "{read:?} of {NAME}: no one wrote that there");
            // The file of a lost client may have been recreated from what the server found.
            let own = (reader == &cell.0 && !self.is_lost(*reader)).then_some(*begun);
            let least = self.least(*cell, own, *synchronized);
            assert!(*value >= least, "{read:?} of {NAME} is older than {least}");
        }
        let Some(ino) = self.ino else { return };
        for cell in self.cells.keys() {
            let (number, offset, _) = layout().place(at(*cell));
            let name = Name::from(&*data_name(ino, number));
            let found = memory
                .all
                .iter()
                .find(|((_, object), _)| object.name == name);
            let offset = offset as usize;
            let data =
                found.and_then(|(_, content)| content.data.get(offset..offset + CELL as usize));
            let (value, least) = (data.map_or(0, value), self.least(*cell, None, u64::MAX));
            assert!(
                value >= least,
                "{cell:?} of {NAME} has {value} at the end, and {least} was propagated"
            );
        }
    }
}

/// A cell's offset in the file.
const fn at((lane, block): Cell) -> u64 {
    block * BLOCK + lane * CELL
}
/// The value that fills a cell; 0: never written.
fn value(cell: &[u8]) -> u64 {
    let mut words = cell
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
    let first = words.next().expect("a cell has bytes");
    assert!(
        words.all(|word| word == first),
        "a cell of {NAME} has more than one write's bytes"
    );
    first
}

#[derive(Debug)]
enum Doing {
    Open,
    Close,
    /// Switches lazy I/O on or off.
    Lazy(bool),
    Write(Cell),
    /// First and last block; when it began, and the least value of each cell.
    Read((u64, u64), u64, Vec<u64>),
    /// When it began; `true`: with `fsync`.
    Propagate((u64, u64), u64, bool),
    Synchronize((u64, u64), u64),
    StatLite,
}

/// The program of one client.
#[derive(Debug)]
pub struct Lazily {
    dir: Ino,
    client: ClientId,
    lane: Option<u64>,
    open: Option<Ino>,
    /// It was open once: others may have it alone now.
    seen: Option<Ino>,
    lazy: bool,
    /// It is closed next.
    closes: bool,
    asked: BTreeMap<CallId, Doing>,
    /// For each block, when the last finished call began that synchronized it.
    synchronized: [u64; BLOCKS as usize],
    evicted: bool,
}

impl Lazily {
    pub const fn new(client: ClientId, dir: Ino) -> Self {
        Self {
            dir,
            client,
            lane: None,
            open: None,
            seen: None,
            lazy: false,
            closes: false,
            asked: BTreeMap::new(),
            synchronized: [0; BLOCKS as usize],
            evicted: false,
        }
    }
    pub fn is_waiting(&self) -> bool {
        !self.asked.is_empty()
    }
    pub fn on_evicted(&mut self, slate: &mut Slate) {
        slate.on_lost(self.client, true);
        // What it wrote in its lane may come back.
        (self.evicted, self.lane) = (true, None);
        self.synchronized = [0; BLOCKS as usize];
        for doing in self.asked.values_mut() {
            // It does not concern the new session.
            match doing {
                Doing::Synchronize(_, begun) | Doing::Propagate(_, begun, _) => *begun = 0,
                Doing::Read(_, _, least) => least.clear(),
                _ => {}
            }
        }
    }

    /// The next call, if any.
    pub fn next(
        &mut self,
        now: u64,
        rng: &mut Rng,
        slate: &mut Slate,
        begin: impl FnOnce(Ask) -> CallId,
    ) {
        let changes = |doing: &Doing| matches!(doing, Doing::Open | Doing::Close | Doing::Lazy(_));
        if self.asked.len() >= CALLS || self.asked.values().any(changes) {
            return;
        }
        let is_idle = self.asked.is_empty();
        let lane = *self.lane.get_or_insert_with(|| slate.new_lane(self.client));
        let Some(ino) = self.open else {
            if let Some(ino) = self.seen.filter(|_| rng.one_in(3)) {
                self.asked
                    .insert(begin(Ask::Names(FsCall::StatLite { ino })), Doing::StatLite);
            } else if is_idle && rng.one_in(4) {
                self.asked
                    .insert(begin(Ask::Names(make(self.dir, NAME, true))), Doing::Open);
            }
            return;
        };
        let block = rng.below(BLOCKS);
        let all = (0, BLOCKS);
        let blocks = if rng.one_in(3) {
            all
        } else {
            (block, block + 1)
        };
        let (offset, length) = (blocks.0 * BLOCK, (blocks.1 - blocks.0) * BLOCK);
        let own = |doing: &Doing| matches!(doing, Doing::Write(cell) if *cell == (lane, block));
        let (ask, doing) = match rng.below(24) {
            _ if self.closes && !is_idle => return,
            _ if self.closes && self.lazy => (Ask::Lazy { ino, lazy: false }, Doing::Lazy(false)),
            _ if self.closes => {
                let close = FsCall::Close {
                    ino,
                    write: true,
                    size: 0,
                    mtime: Stamp::default(),
                };
                (Ask::Names(close), Doing::Close)
            }
            0 if rng.one_in(3) => {
                self.closes = true;
                return;
            }
            // Usually it is lazy.
            1..3 if is_idle && (!self.lazy || rng.one_in(6)) => (
                Ask::Lazy {
                    ino,
                    lazy: !self.lazy,
                },
                Doing::Lazy(!self.lazy),
            ),
            16..24 if is_idle && !self.lazy => (Ask::Lazy { ino, lazy: true }, Doing::Lazy(true)),
            2 => (
                Ask::Sync { ino: Some(ino) },
                Doing::Propagate(all, now, true),
            ),
            3..6 => (
                Ask::Propagate {
                    ino,
                    offset,
                    length,
                },
                Doing::Propagate(blocks, now, false),
            ),
            6..9 => (
                Ask::Synchronize {
                    ino,
                    offset,
                    length,
                },
                Doing::Synchronize(blocks, now),
            ),
            9 => (Ask::Names(FsCall::StatLite { ino }), Doing::StatLite),
            // Of two at a time, either may come first.
            10..16 if lane < LANES && !self.asked.values().any(own) => {
                slate.last_value += 1;
                let (cell, value) = ((lane, block), slate.last_value);
                let write = Write {
                    value,
                    begun: now,
                    ended: None,
                    propagated: None,
                    sure: false,
                };
                slate.cells.entry(cell).or_default().push(write);
                slate.most = slate.most.max(at(cell) + CELL);
                let data = Bytes::from(value.to_le_bytes().repeat(CELL as usize / 8));
                (
                    Ask::Write {
                        ino,
                        offset: at(cell),
                        data,
                    },
                    Doing::Write(cell),
                )
            }
            _ => {
                let least = (blocks.0..blocks.1).map(|block| self.synchronized[block as usize]);
                // A reader without lazy I/O sees what was there when it began.
                let least = least
                    .map(|begun| if self.lazy { begun } else { now })
                    .collect();
                (
                    Ask::Read {
                        ino,
                        offset,
                        length: length as u32,
                    },
                    Doing::Read(blocks, now, least),
                )
            }
        };
        self.asked.insert(begin(ask), doing);
    }

    /// Handles the end of a call; returns whether it was this program's.
    ///
    /// # Panics
    /// If the outcome is wrong.
    pub fn on_ended(
        &mut self,
        now: u64,
        slate: &mut Slate,
        call: CallId,
        outcome: &Outcome,
    ) -> bool {
        let Some(doing) = self.asked.remove(&call) else {
            return false;
        };
        match (&doing, outcome) {
            (Doing::Open, Ok(Given::Answer(FsAnswer::Node { node, .. }))) => {
                slate.ino = Some(node.inode.ino);
                (self.open, self.seen) = (slate.ino, slate.ino);
                (self.lazy, self.closes) = (false, false);
            }
            (Doing::Close, Ok(_)) => self.open = None,
            (Doing::Lazy(lazy), Ok(Given::Done)) => self.lazy = *lazy,
            (Doing::Write(cell), Ok(Given::Done)) => {
                let writes = slate.cells.get_mut(cell).expect("it was noted");
                // One at a time, and none in a lane that it no longer has.
                if Some(cell.0) == self.lane {
                    writes.last_mut().expect("it was noted").ended = Some(now);
                }
            }
            (Doing::Propagate(blocks, begun, sure), Ok(Given::Done)) => {
                if let Some(lane) = self.lane {
                    slate.propagated(lane, *blocks, *begun, now, *sure);
                }
            }
            (Doing::Synchronize(blocks, begun), Ok(Given::Done)) => {
                for block in blocks.0..blocks.1 {
                    let last = &mut self.synchronized[block as usize];
                    *last = (*last).max(*begun);
                }
            }
            (Doing::Read(blocks, begun, least), Ok(Given::Data(parts))) => {
                let mut data = parts.concat();
                data.resize(((blocks.1 - blocks.0) * BLOCK) as usize, 0);
                let lane = self.lane.filter(|_| !least.is_empty());
                let Some(reader) = lane else { return true };
                for lane in 0..LANES.min(slate.lanes.len() as u64) {
                    for (block, synchronized) in (blocks.0..blocks.1).zip(least) {
                        let at = ((block - blocks.0) * BLOCK + lane * CELL) as usize;
                        let value = value(&data[at..at + CELL as usize]);
                        let (begun, ended, synchronized) = (*begun, now, *synchronized);
                        let cell = (lane, block);
                        slate.reads.push(Read {
                            reader,
                            cell,
                            value,
                            begun,
                            ended,
                            synchronized,
                        });
                    }
                }
            }
            (Doing::StatLite, Ok(Given::Answer(FsAnswer::Node { node, .. }))) => {
                let inode = &node.inode;
                let exact = (inode.is_file(), Some(inode.ino), inode.mode, inode.uid);
                assert_eq!(
                    exact,
                    (true, self.seen, MODE, 1),
                    "what it is like is known without its writers"
                );
                assert!(
                    inode.size <= slate.most,
                    "{NAME} was never so large: {}",
                    inode.size
                );
            }
            // It was evicted, and its caller is told: now, or when it synchronizes.
            (Doing::Close, Err(EIO)) if self.evicted => self.open = None,
            (_, Err(EIO)) if self.evicted => {}
            (doing, outcome) => panic!("{}: {doing:?} of {NAME}: {outcome:?}", self.client),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANNA: ClientId = ClientId(1);
    const BERT: ClientId = ClientId(2);

    /// A write in the first lane, from 0 to 10, propagated by 20; the second client reads it from
    /// 50 to 60, after synchronizing from `synchronized` on.
    fn slate(value: u64, synchronized: u64) -> Slate {
        let mut slate = Slate::default();
        let (writer, reader) = (slate.new_lane(ANNA), slate.new_lane(BERT));
        let write = Write {
            value: 1,
            begun: 0,
            ended: Some(10),
            propagated: None,
            sure: false,
        };
        slate.cells.insert((writer, 0), vec![write]);
        slate.propagated(writer, (0, 1), 15, 20, false);
        slate.reads.push(Read {
            reader,
            cell: (writer, 0),
            value,
            begun: 50,
            ended: 60,
            synchronized,
        });
        slate
    }
    fn passes(slate: &Slate) -> bool {
        std::panic::catch_unwind(|| slate.check(&Memory::default())).is_ok()
    }

    #[test]
    fn what_was_propagated_before_is_read_after_synchronizing() {
        assert!(
            passes(&slate(0, 15)) && passes(&slate(1, 15)),
            "at one time"
        );
        assert!(passes(&slate(1, 30)) && !passes(&slate(0, 30)));
        assert!(!passes(&slate(2, 30)), "no one wrote that");
        let mut lost = slate(0, 30);
        lost.on_lost(ANNA, false);
        assert!(passes(&lost), "its writer died before it was safe");
        lost.propagated(0, (0, 1), 15, 25, true);
        assert!(!passes(&lost), "it was");
    }

    #[test]
    fn a_client_reads_what_it_wrote() {
        let mut own = slate(0, 0);
        own.reads[0].reader = 0;
        assert!(!passes(&own));
        own.reads[0].begun = 5;
        assert!(passes(&own), "at one time");
    }

    #[test]
    fn what_was_propagated_is_in_objects_at_the_end() {
        let mut slate = slate(1, 30);
        slate.ino = Some(Ino(7));
        assert!(!passes(&slate));
        slate.on_lost(ANNA, false);
        assert!(passes(&slate), "its writer died");
    }
}
