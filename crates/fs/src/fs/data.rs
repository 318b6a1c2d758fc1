//! Reading and writing the data of open files, according to the client's capability.
//!
//! ```text
//!  Nothing ─▶ waits
//!  Sync    ─▶ what is the size? ─▶ objects; larger? Wrote      exclusive writes: `exclusive`
//!           all opens lazy? ─▶ as below: `lazy`
//!  Cache   ─▶ cached? ─▶ missing data: objects, and data after it, ahead of the reader
//!  Buffer  ─▶ the same; written data stays here and goes to objects later (`flushing`)
//! ```
//! Invariant: data that is cached, or being read for the cache, is current: it was read since the
//! capability was granted, and is not used after that was given back or the lease has ended. With
//! lazy opens it may be as old as the last time that one of them synchronized.

#[cfg(test)]
#[path = "data_test.rs"]
mod tests;

use super::*;
use crate::cache::{Mark, Part};
use crate::file::{Alone, Made};
use crate::pieces::{cut, pieces, spans, writes};
use crate::stream::Keeping;

/// Reads for the cache begin and end at multiples of this, or at the file's end.
const BLOCK: u64 = 64 << 10;
/// Initial and maximum distance of reading ahead: objects of several OSDs at a time. Data that
/// arrived long before it is used is no longer in the processor's cache; 16 MiB were no faster
/// here.
const AHEAD: std::ops::RangeInclusive<u64> = (256 << 10)..=(8 << 20);
/// A read for the cache ends at a multiple of this in the file: a reader never waits for more than
/// this, and each chunk it has consumed causes a request for another one, so that no OSD waits for
/// the reader. Each chunk is received, checked and passed on before the next: chunks of 4 MiB took
/// 6 % more CPU.
const CHUNK: u64 = 1 << 20;
/// The fraction of the cache that one sequential reader uses.
const STREAM_KEPT: u64 = 16;

/// Data being read from objects for the cache.
#[derive(Debug)]
pub(super) struct Fetch {
    ino: Ino,
    offset: u64,
    end: u64,
    /// The data is current since then: see the module head.
    mark: Mark,
    grant: u64,
    data: Gathering,
    readers: Vec<CallId>,
}

/// A call that waits for some of them.
#[derive(Debug)]
pub(super) struct Reader {
    ino: Ino,
    parts: Vec<Part>,
    left: usize,
    fetched: Vec<(u64, u64, Vec<Bytes>)>,
}

impl Fs {
    /// Begins a read or write.
    pub(super) fn data(&mut self, call: CallId, ask: Ask, out: &mut Vec<Output>) {
        let (ino, _) = ask.of_data().expect("data only");
        let is_first = self
            .files
            .get_mut(&ino)
            .is_some_and(|file| file.first.remove(&call));
        self.begin_data(call, ask, is_first, out);
        if is_first {
            self.first_begun(ino, out);
        }
    }
    /// One call less has to begin before the file is given back.
    pub(super) fn first_begun(&mut self, ino: Ino, out: &mut Vec<Output>) {
        if self
            .files
            .get(&ino)
            .is_some_and(|file| file.first.is_empty() && file.recall.is_some())
        {
            self.settle(ino, out);
        }
    }
    fn begin_data(&mut self, call: CallId, ask: Ask, is_first: bool, out: &mut Vec<Output>) {
        let (ino, writes) = ask.of_data().expect("data only");
        // It did not know that another client may have had the lock meanwhile.
        if self.locking.take_lost(ino) {
            return self.end(call, Err(EIO));
        }
        let (is_sized, knows) = (self.sized.remove(&call), self.knows(ino));
        let lease = self.sessions.has_lease(rank_of(ino), self.now);
        let appends = |file: &File| matches!(ask, Ask::Append { .. }) && !file.cap.buffers();
        if self.files.get(&ino).is_some_and(appends) || self.is_exclusive(ino, &ask) {
            return self.queue_exclusive(call, ino, ask, out);
        }
        let Some(file) = self.files.get_mut(&ino) else {
            return self.end(call, Err(EBADF));
        };
        let is_lazy = file.is_lazy();
        let can = match file.cap {
            FsCap::Nothing {} => false,
            FsCap::Asks {} | FsCap::Sync {} => lease || !is_lazy,
            FsCap::Cache {} => lease && !writes,
            FsCap::Bounded { .. } | FsCap::Buffer {} => lease,
        };
        // Objects are written only after the server knows their file.
        let is_early = file.made != Made::Known
            && matches!(
                ask,
                Ask::Seek { .. } | Ask::Zero { .. } | Ask::Extend { .. }
            );
        // Its exclusive writes are visible to its own calls as they are to others.
        let is_exclusive = file.alone == Alone::Yes && !file.cap.buffers();
        let is_wanted = file.recall.is_some() && !is_first;
        if file.resizing || is_wanted || !can || is_early || is_exclusive {
            return file.waiting.push_back((call, ask));
        }
        if file.keeps_lazily && file.cap.is_shared() && !is_lazy && !self.ends_lazily(ino, out) {
            return self.put_off(ino, call, ask);
        }
        let file = self.files.get_mut(&ino).expect("just seen");
        // Another client may have made it larger or shorter.
        let suffices = is_sized || knows || (is_lazy && file.suffices_lazily(&ask));
        if !(if file.cap >= (FsCap::Cache {}) {
            file.is_fresh
        } else {
            suffices
        }) {
            let sized = Purpose::Sized(call, ask, file.grants);
            if is_first {
                file.first.insert(call);
            }
            return self.request(FsCall::Stat { ino }, sized, out);
        }
        let keeps = file.cap >= FsCap::Cache {} || is_lazy;
        file.keeps_lazily |= is_lazy;
        match ask {
            Ask::Read { offset, length, .. } if keeps => self.read_kept(call, ino, offset, length),
            Ask::Read { offset, length, .. } => self.read(call, ino, offset, length),
            Ask::Seek { offset, hole, .. } => self.seek(call, ino, offset, hole, out),
            Ask::Zero { offset, length, .. } => self.zero(call, ino, (offset, length), out),
            Ask::Extend { size, .. } => self.extend(call, ino, size, out),
            // There is too much dirty data: it waits for its turn.
            ask if keeps && self.cache.dirty() >= self.config.dirty_max as u64 => {
                self.throttled.push_back((call, ask));
                self.flush_all(out);
            }
            ask if self.lacks_room(ino, &ask) => self.ask_for_room(call, ino, ask, out),
            Ask::Write { offset, data, .. } if keeps => self.buffer(call, ino, offset, data, out),
            Ask::Append { data, .. } => {
                let end = self.files[&ino].size;
                self.buffer(call, ino, end, data, out);
            }
            Ask::Write { offset, data, .. } => self.write_now(call, ino, offset, data, out),
            _ => unreachable!("data only"),
        }
    }

    /// A file's size has been requested: `grant` is the grant at that time.
    pub(super) fn sized(&mut self, call: CallId, ask: Ask, grant: u64) {
        if let Some((ino, _)) = ask.of_data()
            && let Some(file) = self.files.get_mut(&ino)
            && file.grants == grant
            && file.recall.is_none()
        {
            file.is_sized = true;
            file.is_fresh |= file.cap >= FsCap::Cache {};
        }
        self.sized.insert(call);
        // Later calls have not begun, or are another caller's.
        self.put_back(call, ask);
    }

    /// The size cannot be determined.
    pub(super) fn not_sized(&mut self, call: CallId, ask: &Ask, errno: u16, out: &mut Vec<Output>) {
        self.end(call, Err(errno));
        if let Some((ino, _)) = ask.of_data()
            && self
                .files
                .get_mut(&ino)
                .is_some_and(|file| file.first.remove(&call))
        {
            self.first_begun(ino, out);
        }
    }

    pub(super) fn operation(
        &self,
        ino: Ino,
        number: u64,
        ops: Vec<SubOp>,
        payload: Vec<Bytes>,
    ) -> Operation {
        let settings = self.seek.found().and_then(|found| found.settings.as_ref());
        let namespace = settings
            .map(|settings| settings.namespace.clone())
            .unwrap_or_default();
        let name = Name::from(&*data_name(ino, number));
        let object = ObjectId {
            name,
            namespace,
            ..ObjectId::default()
        };
        let pool = self.files[&ino].layout.pool;
        Operation {
            pool,
            object,
            ops,
            payload,
            ..Operation::default()
        }
    }
    /// Operations that write data to a file's objects.
    pub(super) fn write_objects(
        &mut self,
        ino: Ino,
        offset: u64,
        data: &[Bytes],
        whom: impl Fn() -> For,
    ) -> usize {
        let all = writes(&self.files[&ino].layout, offset, data);
        let count = all.len();
        for (number, (mut ops, payload)) in all {
            if number == 0 {
                ops.extend(self.files[&ino].parent());
            }
            let operation = self.operation(ino, number, ops, payload);
            self.operations.push_back((operation, whom()));
        }
        count
    }

    /// The end of a write; `None`: there is nothing to do, and the call has ended.
    pub(super) fn end_of(
        &mut self,
        call: CallId,
        ino: Ino,
        offset: u64,
        data: &Bytes,
    ) -> Option<u64> {
        let end = offset.saturating_add(data.len() as u64);
        if end > self.files[&ino].layout.data_max() || data.is_empty() {
            self.end(
                call,
                if data.is_empty() {
                    Ok(Given::Done)
                } else {
                    Err(EFBIG)
                },
            );
            return None;
        }
        Some(end)
    }

    /// Operations that read a range of a file from its objects; `whom` returns the purpose of each
    /// piece.
    fn read_objects(
        &mut self,
        ino: Ino,
        offset: u64,
        end: u64,
        whom: impl Fn(usize) -> For,
    ) -> Gathering {
        let all = pieces(&self.files[&ino].layout, offset, end - offset);
        for (
            index,
            Piece {
                number,
                offset,
                length,
            },
        ) in all.iter().copied().enumerate()
        {
            let operation = self.operation(
                ino,
                number,
                vec![SubOp::Read { offset, length }],
                Vec::new(),
            );
            self.operations.push_back((operation, whom(index)));
        }
        Gathering::new(&all)
    }

    // ── nothing is kept ─────────────────────────────────────────────────────────────────

    fn read(&mut self, call: CallId, ino: Ino, offset: u64, length: u32) {
        let end = self.files[&ino].end_of_read(offset, length);
        if offset >= end {
            return self.end(call, Ok(Given::Data(Vec::new())));
        }
        let data = self.read_objects(ino, offset, end, |index| For::Call(call, index));
        let file = self.files.get_mut(&ino).expect("just seen");
        let spans = spans(&file.layout, offset, end);
        file.reads += usize::from(spans);
        self.transfers
            .insert(call, Transfer::Read { ino, data, spans });
    }
    /// A read that delayed others has ended.
    pub(super) fn read_ended(&mut self, ino: Ino, out: &mut Vec<Output>) {
        let Some(file) = self.files.get_mut(&ino) else {
            return;
        };
        file.reads -= 1;
        if file.reads == 0 {
            self.settle(ino, out);
        }
    }

    pub(super) fn write_now(
        &mut self,
        call: CallId,
        ino: Ino,
        offset: u64,
        data: Bytes,
        out: &mut Vec<Output>,
    ) {
        let stamp = self.stamp();
        let Some(end) = self.end_of(call, ino, offset, &data) else {
            return;
        };
        let file = self.files.get_mut(&ino).expect("just seen");
        if file.awaits_safe(end) {
            file.waiting
                .push_back((call, Ask::Write { ino, offset, data }));
            return self.hurry(ino, out);
        }
        file.writes += 1;
        file.writes_from(offset);
        if file.is_far(end) || file.asks_first(end) {
            let wrote = FsCall::Wrote {
                ino,
                size: end,
                mtime: stamp,
            };
            return self.request(wrote, Purpose::Grown(call, ino, offset, data), out);
        }
        self.write(call, ino, offset, data);
    }
    /// The server knows where a write will end, which may be far beyond what is safe.
    pub(super) fn grown_for(
        &mut self,
        call: CallId,
        ino: Ino,
        offset: u64,
        data: Bytes,
        out: &mut Vec<Output>,
    ) {
        let end = offset + data.len() as u64;
        if self.is_answered_early(ino, offset, &data) {
            self.keep_early(call, ino, offset, &data, out);
            return self.write_ended(ino, out);
        }
        let file = self
            .files
            .get_mut(&ino)
            .expect("files with writes under way are kept");
        if file.awaits_safe(end) {
            file.waiting
                .push_back((call, Ask::Write { ino, offset, data }));
            self.hurry(ino, out);
            return self.write_ended(ino, out);
        }
        self.write(call, ino, offset, data);
    }
    pub(super) fn write(&mut self, call: CallId, ino: Ino, offset: u64, data: Bytes) {
        let end = offset + data.len() as u64;
        let left = self.write_objects(ino, offset, &[data], || For::Call(call, 0));
        self.transfers.insert(
            call,
            Transfer::Write {
                ino,
                end,
                left,
                failed: None,
            },
        );
    }
    /// All of a call's data is written, or some of it failed.
    pub(super) fn written(
        &mut self,
        call: CallId,
        ino: Ino,
        end: u64,
        failed: Option<u16>,
        out: &mut Vec<Output>,
    ) {
        let stamp = self.stamp();
        let file = self
            .files
            .get_mut(&ino)
            .expect("files with writes under way are kept");
        if let Some(errno) = failed {
            if end <= file.size {
                // Some of it may be written: it is reported together with the next write.
                file.writes_to(end);
            }
            self.end(call, Err(errno));
            return self.write_ended(ino, out);
        }
        let is_larger = end > file.size;
        // It may have been truncated meanwhile, but by no other client while this one has it alone.
        let is_alone = file.alone == Alone::Yes && file.is_fresh;
        if is_larger || !(is_alone || self.knows(ino)) {
            let wrote = FsCall::Wrote {
                ino,
                size: end,
                mtime: stamp,
            };
            return self.request(wrote, Purpose::Written(call, ino), out);
        }
        self.files.get_mut(&ino).expect("just seen").writes_to(end);
        self.dirtied(ino, stamp);
        self.end(call, Ok(Given::Done));
        self.write_ended(ino, out);
    }
    pub(super) fn write_ended(&mut self, ino: Ino, out: &mut Vec<Output>) {
        let Some(file) = self.files.get_mut(&ino) else {
            return;
        };
        file.writes -= 1;
        if file.writes == 0 {
            self.settle(ino, out);
        }
    }

    // ── what is kept ────────────────────────────────────────────────────────────────────

    fn read_kept(&mut self, call: CallId, ino: Ino, offset: u64, length: u32) {
        let file = self.files.get_mut(&ino).expect("just seen");
        let end = file.end_of_read(offset, length);
        if offset >= end {
            return self.end(call, Ok(Given::Data(Vec::new())));
        }
        let in_objects = file.in_objects();
        let (mut fetches, mut parts) = (BTreeSet::new(), Vec::new());
        for part in self.cache.read(ino, offset, end - offset) {
            if let Part::Missing { offset, length } = part {
                let middle = in_objects.clamp(offset, offset + length);
                if offset < middle {
                    self.fetch(ino, offset, middle, &mut fetches);
                    parts.push(Part::Missing {
                        offset,
                        length: middle - offset,
                    });
                }
                if middle < offset + length {
                    parts.push(Part::Data(zeros(offset + length - middle)));
                }
            } else {
                parts.push(part);
            }
        }
        if !self.copies.goes_on_inside(call) {
            self.go_on_reading(ino, offset..end);
        }
        if fetches.is_empty() {
            let data = whole(parts).expect("what is missing is fetched");
            return self.end(call, Ok(Given::Data(data)));
        }
        let left = fetches.len();
        for fetch in fetches {
            self.fetches
                .get_mut(&fetch)
                .expect("it was just begun")
                .readers
                .push(call);
        }
        // The cached part may be older than the rest, which is read now.
        self.files.get_mut(&ino).expect("just seen").reads += 1;
        self.readers.insert(
            call,
            Reader {
                ino,
                parts,
                left,
                fetched: Vec::new(),
            },
        );
    }

    /// A range has been or is about to be read: begins to read ahead if its reader is sequential,
    /// and evicts what such a reader leaves behind.
    pub(super) fn go_on_reading(&mut self, ino: Ino, range: Range<u64>) {
        let how = Keeping {
            first: self.cache.bytes_max() / STREAM_KEPT,
            behind: CHUNK,
        };
        let file = self.files.get_mut(&ino).expect("it is open");
        let (follows, left) = file.stream.read(range.clone(), how);
        if follows {
            self.read_ahead(ino, range.end);
        } else {
            file.ahead = 0;
        }
        self.cache.leave(ino, left);
    }
    /// Begins to read ahead from an offset.
    fn read_ahead(&mut self, ino: Ino, from: u64) {
        let file = self.files.get_mut(&ino).expect("it is open");
        if file.ahead == 0 {
            file.ahead_to = from;
        }
        file.ahead = (file.ahead * 2).clamp(*AHEAD.start(), *AHEAD.end());
        let limit = file.in_objects();
        let (begin, mut target) = (file.ahead_to.max(from), from + file.ahead);
        if file.ahead > 2 * CHUNK {
            target -= target % CHUNK;
        }
        let target = target.min(limit);
        // In large pieces, or the rest.
        if target <= begin || (target - begin < CHUNK.min(file.ahead / 2) && target < limit) {
            return;
        }
        file.ahead_to = target;
        for part in self.cache.read(ino, begin, target - begin) {
            if let Part::Missing { offset, length } = part {
                self.fetch(ino, offset, offset + length, &mut BTreeSet::new());
            }
        }
    }

    /// Reads a range from objects, except for what is being read already; collects the reads that
    /// cover it.
    fn fetch(&mut self, ino: Ino, offset: u64, end: u64, into: &mut BTreeSet<u64>) {
        let (mark, file) = (self.cache.reading(ino), &self.files[&ino]);
        let grant = file.grants;
        let end = end.next_multiple_of(BLOCK).min(file.in_objects());
        let mut at = offset / BLOCK * BLOCK;
        let cache = &self.cache;
        let of_now = |fetch: &Fetch| {
            fetch.ino == ino && fetch.grant == grant && cache.is_of_now(ino, fetch.mark)
        };
        let mut known: Vec<(u64, u64, u64)> = self
            .fetches
            .iter()
            .filter(|(_, fetch)| of_now(fetch) && fetch.offset < end && fetch.end > at)
            .map(|(number, fetch)| (fetch.offset, fetch.end, *number))
            .collect();
        known.sort_unstable();
        let mut gaps = Vec::new();
        for (from, to, number) in known {
            gaps.push(at..from);
            into.insert(number);
            at = at.max(to);
        }
        gaps.push(at..end);
        for gap in gaps {
            let mut offset = gap.start;
            while offset < gap.end {
                let end = (offset + 1).next_multiple_of(CHUNK).min(gap.end);
                let number = self.next_number();
                let data = self.read_objects(ino, offset, end, |index| For::Fetch(number, index));
                self.fetches.insert(
                    number,
                    Fetch {
                        ino,
                        offset,
                        end,
                        mark,
                        grant,
                        data,
                        readers: Vec::new(),
                    },
                );
                into.insert(number);
                offset = end;
            }
        }
    }

    /// An object has been read for the cache, or failed.
    pub(super) fn on_fetched(
        &mut self,
        number: u64,
        index: usize,
        result: Result<Vec<Bytes>, u16>,
        out: &mut Vec<Output>,
    ) {
        let Some(fetch) = self.fetches.get_mut(&number) else {
            return;
        };
        let Some(data) = result.map(|read| fetch.data.take(index, read)).transpose() else {
            return;
        };
        let Fetch {
            ino,
            offset,
            end,
            mark,
            grant,
            readers,
            ..
        } = self.fetches.remove(&number).expect("just seen");
        let data = match data {
            Ok(data) => data,
            Err(errno) => {
                for call in readers {
                    if let Some(reader) = self.readers.remove(&call) {
                        self.end(call, Err(errno));
                        self.read_ended(reader.ino, out);
                    }
                }
                return;
            }
        };
        let may_keep =
            |file: &File| file.grants == grant && (file.cap >= FsCap::Cache {} || file.is_lazy());
        if self.files.get(&ino).is_some_and(may_keep) {
            self.cache.fill(ino, mark, offset, &data);
        }
        for call in readers {
            let Some(reader) = self.readers.get_mut(&call) else {
                continue;
            };
            reader.fetched.push((offset, end, data.clone()));
            reader.left -= 1;
            if reader.left == 0 {
                let reader = self.readers.remove(&call).expect("just seen");
                let ino = reader.ino;
                self.end(call, Ok(Given::Data(reader.assemble())));
                self.read_ended(ino, out);
            }
        }
    }
}

/// The cached data, if nothing is missing.
pub(super) fn whole(parts: Vec<Part>) -> Option<Vec<Bytes>> {
    let data = parts.into_iter().map(|part| match part {
        Part::Data(data) => Some(data),
        Part::Missing { .. } => None,
    });
    data.collect()
}
fn zeros(length: u64) -> Bytes {
    Bytes::from(vec![
        0;
        usize::try_from(length).expect("a part of a call's")
    ])
}

impl Reader {
    fn assemble(mut self) -> Vec<Bytes> {
        self.fetched.sort_unstable_by_key(|(offset, ..)| *offset);
        let mut data = Vec::new();
        for part in self.parts {
            match part {
                Part::Data(kept) => data.push(kept),
                Part::Missing { offset, length } => {
                    let (mut at, end) = (offset, offset + length);
                    for (from, to, read) in &self.fetched {
                        if *from <= at && at < *to {
                            let until = end.min(*to);
                            data.extend(cut(read, at - from, until - at));
                            at = until;
                        }
                        if at == end {
                            break;
                        }
                    }
                    debug_assert_eq!(at, end, "all that is missing is fetched");
                }
            }
        }
        data
    }
}
