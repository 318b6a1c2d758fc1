//! Reads: resolved in memory, then read from the device, each block verified against its checksum.
//!
//! ```text
//!  start ──▶ try ──all in memory──▶ answer
//!             │ ├── a record or scan is missing: wait for a job, try again
//!             │ └── blocks must be read: the plan is fixed now, despite later writes ──▶ answer
//!             └── an earlier transaction is not applied yet: wait
//! ```

use super::lookup::{Scan, ScanFor};
use super::{Purpose, Store};
use crate::api::{CollectionId, Event, ObjectKey, ObjectStat, Read, ReadError, ReadReply, Token};
use crate::apply::split;
use crate::device::{Device, DeviceError, IoKind};
use crate::format::checksum::crc32c;
use crate::format::object::{BlockRef, Head, Shard};
use crate::format::{BLOCK, BLOCK_U64, ZEROS, keys};
use crate::index::Scanned;
use crate::tables::Damaged;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// A read that waits for records.
struct Waiter {
    read: Read,
    token: Token,
    /// It must see this transaction.
    after: u64,
    /// The index's entries from this key on, for reads of a range. The object may have been
    /// replaced meanwhile: then they do not belong to the object that has its name now.
    scanned: Option<(Bytes, Scanned)>,
    /// The start of the next scan, if everything found so far was removed again in memory.
    resume: Option<Bytes>,
}

/// The source of an answer's next bytes.
enum Piece {
    Memory(Bytes),
    /// `length` bytes from `start` of a part read from the device.
    Part {
        part: usize,
        start: usize,
        length: usize,
    },
}

struct Part {
    unit: u64,
    /// Offset in the object and expected checksum of each block.
    blocks: Vec<(u64, u32)>,
    data: Option<Bytes>,
}

/// A read whose blocks are being read.
struct InFlight {
    token: Token,
    pieces: Vec<Piece>,
    parts: Vec<Part>,
    left: usize,
    error: Option<ReadError>,
}

#[derive(Default)]
pub(super) struct Reads {
    waiting: BTreeMap<u64, Waiter>,
    in_flight: BTreeMap<u64, InFlight>,
    next: u64,
}

impl Reads {
    pub(super) fn next_id(&self) -> u64 {
        self.next
    }
    pub(super) fn oldest(&self) -> Option<u64> {
        if crate::mutant(crate::Mutant::NewestReaderCounts) {
            self.in_flight.last_key_value()
        } else {
            self.in_flight.first_key_value()
        }
        .map(|(&id, _)| id)
    }
    /// Asserts that no read waits, and no answered one is remembered.
    pub(super) fn check_at_rest(&self) {
        assert!(
            self.waiting.is_empty() && self.in_flight.is_empty(),
            "reads that nobody waits for"
        );
    }
    pub(super) fn none_wait(&self) -> bool {
        self.waiting.is_empty()
    }
    pub(super) fn looks_at(&self, unit: u64, count: u64) -> bool {
        let overlaps = |p: &Part| p.unit < unit + count && p.unit + p.blocks.len() as u64 > unit;
        self.in_flight.values().any(|read| {
            read.parts
                .iter()
                .take(if crate::mutant(crate::Mutant::LooksAtFirstPart) {
                    1
                } else {
                    usize::MAX
                })
                .any(overlaps)
        })
    }
    /// One more transaction precedes all after number `applied`.
    pub(super) fn one_more_before(&mut self, applied: u64) {
        self.waiting
            .values_mut()
            .filter(|w| w.after > applied)
            .for_each(|w| w.after += 1);
    }
    pub(super) fn scanned(&mut self, read: u64, from: Bytes, found: Scanned) {
        if let Some(waiter) = self.waiting.get_mut(&read) {
            waiter.scanned = Some((from, found));
        }
    }
}

/// Why a read cannot be answered yet.
enum Later {
    Keys(Vec<Bytes>),
    Scan(Scan),
    Blocks(Vec<Piece>, Vec<Part>),
    /// The record is being looked up already.
    Asked,
}

/// An answer, an error, or the missing records.
type Tried = Result<Result<ReadReply, ReadError>, Later>;

impl<D: Device> Store<D> {
    pub(super) fn start_read(&mut self, read: Read, token: Token) {
        let waiter = Waiter {
            read,
            token,
            after: self.submitted,
            scanned: None,
            resume: None,
        };
        self.try_read(waiter, None);
    }

    pub(super) fn retry_reads(&mut self) {
        if self.reads.none_wait() {
            return;
        }
        let ready: Vec<u64> = self
            .reads
            .waiting
            .iter()
            .filter(|(_, w)| w.after <= self.applied)
            .map(|(&id, _)| id)
            .collect();
        for id in ready {
            if let Some(waiter) = self.reads.waiting.remove(&id) {
                self.try_read(waiter, Some(id));
            }
        }
    }

    fn try_read(&mut self, mut waiter: Waiter, id: Option<u64>) {
        let wait = |reads: &mut Reads, waiter: Waiter| {
            let id = id.unwrap_or_else(|| {
                reads.next += 1;
                reads.next - 1
            });
            reads.waiting.insert(id, waiter);
            id
        };
        if waiter.after > self.applied {
            wait(&mut self.reads, waiter);
            return;
        }
        let tried = match &waiter.read {
            Read::Stat(object) => self.try_stat(object),
            Read::Weight(object) => {
                let weight = self.clone_bytes(object);
                weight
                    .map(|weight| Ok(ReadReply::Weight(weight)))
                    .map_err(|_| Later::Asked)
            }
            Read::Data {
                object,
                offset,
                length,
            } => self.try_data(object, *offset, *length),
            Read::Extents {
                object,
                offset,
                length,
            } => self.try_extents(object, *offset, *length),
            Read::OmapGet { object, keys } => self.try_omap_get(object, keys),
            Read::Omap {
                object,
                from,
                to,
                limit_entries,
                limit_bytes,
            } => {
                let (scanned, resume) = (waiter.scanned.take(), &mut waiter.resume);
                self.try_omap(
                    object,
                    from,
                    to.as_ref(),
                    *limit_entries,
                    *limit_bytes,
                    scanned,
                    resume,
                )
            }
            Read::List {
                collection,
                from,
                to,
                limit,
            } => {
                let (scanned, resume) = (waiter.scanned.take(), &mut waiter.resume);
                self.try_list(*collection, from, to.as_ref(), *limit, scanned, resume)
            }
        };
        match tried {
            Ok(answer) => self.events.push(Event::Read(waiter.token, answer)),
            Err(Later::Keys(keys)) => {
                self.lookups.want_keys(keys);
                wait(&mut self.reads, waiter);
            }
            Err(Later::Asked) => drop(wait(&mut self.reads, waiter)),
            Err(Later::Scan(scan)) => {
                let id = wait(&mut self.reads, waiter);
                self.lookups.want_scan(ScanFor::Read(id), scan);
            }
            Err(Later::Blocks(pieces, parts)) => {
                // A new number even for a read that waited: it does not use units freed before now.
                let id = self.reads.next;
                self.reads.next += 1;
                // Completions of the device are processed only in `poll`, after the read is
                // registered.
                for (part, Part { unit, blocks, .. }) in parts.iter().enumerate() {
                    let (offset, length) = (unit * BLOCK_U64, blocks.len() * BLOCK);
                    self.io(
                        Purpose::Read { read: id, part },
                        IoKind::Read { offset, length },
                    );
                }
                let left = parts.len();
                let read = InFlight {
                    token: waiter.token,
                    pieces,
                    parts,
                    left,
                    error: None,
                };
                self.reads.in_flight.insert(id, read);
            }
        }
    }

    fn head(&mut self, object: &ObjectKey) -> Result<Result<Option<Arc<Head>>, ReadError>, Later> {
        let key = keys::head(object);
        match self.tables.head(&key) {
            None => Err(Later::Keys(vec![key])),
            Some(head) => Ok(head.map_err(|Damaged| ReadError::IndexCorrupt)),
        }
    }

    fn try_stat(&mut self, object: &ObjectKey) -> Tried {
        let head = self.head(object)?;
        Ok(head.map(|h| {
            ReadReply::Stat(h.map(|h| ObjectStat {
                size: h.size,
                attrs: h.attrs.to_map(),
            }))
        }))
    }

    /// The blocks from `first` up to `after`.
    fn block_refs(
        &mut self,
        head: &Head,
        first: u64,
        after: u64,
    ) -> Result<Result<Vec<BlockRef>, ReadError>, Later> {
        if head.shards.is_empty() && split(after - 1).0 == 0 {
            let blocks = split(first).1..=split(after - 1).1;
            return Ok(Ok(blocks.map(|at| head.first.block(at)).collect()));
        }
        let mut shards: BTreeMap<u32, Shard> = BTreeMap::new();
        let mut missing = Vec::new();
        for n in head.shards_in(split(first).0..split(after - 1).0 + 1) {
            let key = keys::shard(head.number, n);
            match self.tables.get(&key) {
                Some(Some(record)) => match Shard::decode(record.bytes()) {
                    Some(shard) => drop(shards.insert(n, shard)),
                    None => return Ok(Err(ReadError::IndexCorrupt)),
                },
                Some(None) => return Ok(Err(ReadError::IndexCorrupt)),
                None => missing.push(key),
            }
        }
        if !missing.is_empty() {
            return Err(Later::Keys(missing));
        }
        let block = |index| match split(index) {
            (0, at) => head.first.block(at),
            (n, at) => shards
                .get(&n)
                .map_or(BlockRef::default(), |shard| shard.block(at)),
        };
        Ok(Ok((first..after).map(block).collect()))
    }

    fn try_data(&mut self, object: &ObjectKey, offset: u64, length: u64) -> Tried {
        let head = match self.head(object)? {
            Ok(Some(head)) => head,
            Ok(None) => return Ok(Err(ReadError::NotFound)),
            Err(error) => return Ok(Err(error)),
        };
        let end = offset.saturating_add(length).min(head.size);
        if offset >= end {
            return Ok(Ok(ReadReply::Data(Vec::new())));
        }
        if !head.inline.is_empty() {
            let inline = head
                .inline
                .slice(offset.min(head.inline.len() as u64) as usize..);
            let inline = inline.slice(..inline.len().min((end - offset) as usize));
            let rest = end - offset - inline.len() as u64;
            let data = std::iter::once(inline)
                .filter(|b| !b.is_empty())
                .chain(zeros(rest))
                .collect();
            return Ok(Ok(ReadReply::Data(data)));
        }
        let (first, after) = (offset / BLOCK_U64, end.div_ceil(BLOCK_U64));
        let refs = match self.block_refs(&head, first, after)? {
            Ok(refs) => refs,
            Err(error) => return Ok(Err(error)),
        };
        let (mut pieces, mut parts): (Vec<Piece>, Vec<Part>) = (Vec::new(), Vec::new());
        for (index, block) in (first..after).zip(refs) {
            let at = index * BLOCK_U64;
            let (start, stop) = (
                offset.saturating_sub(at) as usize,
                (end - at).min(BLOCK_U64) as usize,
            );
            let length = stop - start;
            if block.is_hole() {
                pieces.extend(zeros(length as u64).map(Piece::Memory));
            } else if let Some(pending) = self.pending.by_unit.get(&block.unit) {
                let found = pending.data.crc();
                if found != block.crc {
                    return Ok(Err(ReadError::Corrupt {
                        offset: at,
                        expected: block.crc,
                        found,
                    }));
                }
                let mut bytes = Vec::new();
                pending.data.slice_into(start, length, &mut bytes);
                pieces.extend(bytes.into_iter().map(Piece::Memory));
            } else {
                match parts.last_mut() {
                    Some(part) if part.unit + part.blocks.len() as u64 == block.unit => {
                        part.blocks.push((at, block.crc))
                    }
                    _ => parts.push(Part {
                        unit: block.unit,
                        blocks: vec![(at, block.crc)],
                        data: None,
                    }),
                }
                let part = parts.len() - 1;
                let begin = (parts[part].blocks.len() - 1) * BLOCK + start;
                match pieces.last_mut() {
                    Some(Piece::Part {
                        part: p,
                        start,
                        length: l,
                    }) if *p == part && *start + *l == begin => *l += length,
                    _ => pieces.push(Piece::Part {
                        part,
                        start: begin,
                        length,
                    }),
                }
            }
        }
        if parts.is_empty() {
            return Ok(Ok(ReadReply::Data(assemble(&pieces, &parts))));
        }
        Err(Later::Blocks(pieces, parts))
    }

    pub(super) fn read_part_done(
        &mut self,
        read: u64,
        part: usize,
        result: Result<Bytes, DeviceError>,
    ) {
        let Some(state) = self.reads.in_flight.get_mut(&read) else {
            return;
        };
        let blocks = &state.parts[part].blocks;
        match result {
            Ok(data) if data.len() == blocks.len() * BLOCK => {
                for (&(offset, expected), block) in blocks.iter().zip(data.chunks_exact(BLOCK)) {
                    let found = crc32c(block);
                    if found != expected && state.error.is_none() {
                        state.error = Some(ReadError::Corrupt {
                            offset,
                            expected,
                            found,
                        });
                    }
                }
                state.parts[part].data = Some(data);
            }
            Ok(_) => {
                state.error = Some(ReadError::Device {
                    offset: blocks[0].0,
                    error: DeviceError::Os(0),
                })
            }
            Err(error) => {
                state.error = Some(ReadError::Device {
                    offset: blocks[0].0,
                    error,
                })
            }
        }
        state.left -= 1;
        if state.left == 0 {
            let state = self.reads.in_flight.remove(&read).expect("just looked at");
            let answer = match state.error {
                Some(error) => Err(error),
                None => Ok(ReadReply::Data(assemble(&state.pieces, &state.parts))),
            };
            self.events.push(Event::Read(state.token, answer));
        }
    }

    fn try_extents(&mut self, object: &ObjectKey, offset: u64, length: u64) -> Tried {
        let head = match self.head(object)? {
            Ok(Some(head)) => head,
            Ok(None) => return Ok(Err(ReadError::NotFound)),
            Err(error) => return Ok(Err(error)),
        };
        let end = offset.saturating_add(length).min(head.size);
        let mut extents: Vec<(u64, u64)> = Vec::new();
        let mut add = |from: u64, to: u64| match extents.last_mut() {
            _ if from >= to => {}
            Some((start, length)) if *start + *length == from => *length += to - from,
            _ => extents.push((from, to - from)),
        };
        if !head.inline.is_empty() {
            add(offset, end.min(BLOCK_U64));
        } else if offset < end {
            let (first, after) = (offset / BLOCK_U64, end.div_ceil(BLOCK_U64));
            let refs = match self.block_refs(&head, first, after)? {
                Ok(refs) => refs,
                Err(error) => return Ok(Err(error)),
            };
            for (index, _) in (first..after)
                .zip(refs)
                .filter(|(_, block)| !block.is_hole())
            {
                add(
                    (index * BLOCK_U64).max(offset),
                    ((index + 1) * BLOCK_U64).min(end),
                );
            }
        }
        Ok(Ok(ReadReply::Extents(extents)))
    }

    fn try_omap_get(&mut self, object: &ObjectKey, wanted: &[Bytes]) -> Tried {
        let head = match self.head(object)? {
            Ok(Some(head)) => head,
            Ok(None) => return Ok(Err(ReadError::NotFound)),
            Err(error) => return Ok(Err(error)),
        };
        let (mut entries, mut missing) = (Vec::new(), Vec::new());
        if head.has_omap {
            for key in wanted.iter().collect::<BTreeSet<&Bytes>>() {
                let record = keys::omap(head.number, key);
                match self.tables.get(&record) {
                    Some(Some(value)) => entries.push((key.clone(), value.bytes().clone())),
                    Some(None) => {}
                    None if head.number >= self.tables.indexed_numbers => {}
                    None => missing.push(record),
                }
            }
        }
        if missing.is_empty() {
            Ok(Ok(ReadReply::Omap {
                entries,
                more: false,
            }))
        } else {
            Err(Later::Keys(missing))
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the fields of one read, and its progress"
    )]
    fn try_omap(
        &mut self,
        object: &ObjectKey,
        from: &Bound<Bytes>,
        to: Option<&Bytes>,
        limit_entries: usize,
        limit_bytes: usize,
        scanned: Option<(Bytes, Scanned)>,
        resume: &mut Option<Bytes>,
    ) -> Tried {
        let head = match self.head(object)? {
            Ok(Some(head)) => head,
            Ok(None) => return Ok(Err(ReadError::NotFound)),
            Err(error) => return Ok(Err(error)),
        };
        let number = head.number;
        let start = match from {
            Bound::Unbounded => keys::omap(number, &[]),
            Bound::Included(key) => keys::omap(number, key),
            // The next key in byte order.
            Bound::Excluded(key) => keys::omap(number, &[&key[..], &[0]].concat()),
        };
        let end = to.map_or_else(
            || keys::end(keys::TAG_OMAP, number),
            |to| keys::omap(number, to),
        );
        let scanned = match head.has_omap && number < self.tables.indexed_numbers {
            true => scanned,
            false => {
                *resume = None;
                Some((
                    start.clone(),
                    Scanned {
                        entries: Vec::new(),
                        more: false,
                    },
                ))
            }
        };
        let (found, mut more) =
            self.merge(start, end, limit_entries, limit_bytes, scanned, resume)?;
        let mut entries = Vec::new();
        let mut bytes = 0;
        for (key, value) in found {
            let key = keys::rest(&key);
            let size = key.len() + value.len();
            if entries.len() >= limit_entries || (!entries.is_empty() && bytes + size > limit_bytes)
            {
                more = true;
                break;
            }
            bytes += size;
            entries.push((key, value));
        }
        Ok(Ok(ReadReply::Omap { entries, more }))
    }

    fn try_list(
        &mut self,
        collection: CollectionId,
        from: &Bytes,
        to: Option<&Bytes>,
        limit: usize,
        scanned: Option<(Bytes, Scanned)>,
        resume: &mut Option<Bytes>,
    ) -> Tried {
        if !self.collections.contains_key(&collection) {
            return Ok(Err(ReadError::NotFound));
        }
        let start = keys::head_parts(collection, from);
        let end = match to {
            Some(to) => keys::head_parts(collection, to),
            None => keys::end(keys::TAG_HEAD, collection.0),
        };
        let (found, more) = self.merge(start, end, limit, usize::MAX, scanned, resume)?;
        let more = (more || found.len() > limit) && !crate::mutant(crate::Mutant::ListNeverMore);
        let keys = found
            .into_keys()
            .take(limit)
            .map(|key| keys::rest(&key))
            .collect();
        Ok(Ok(ReadReply::List { keys, more }))
    }

    /// Merges entries from memory and index between `from` and `to`: at least the first `limit` + 1
    /// if there are that many, unless the flag says that there are more; requests a scan if there
    /// was none yet.
    fn merge(
        &mut self,
        from: Bytes,
        to: Bytes,
        limit: usize,
        bytes: usize,
        scanned: Option<(Bytes, Scanned)>,
        resume: &mut Option<Bytes>,
    ) -> Result<(BTreeMap<Bytes, Bytes>, bool), Later> {
        if from >= to {
            return Ok((BTreeMap::new(), false));
        }
        let start = resume
            .clone()
            .filter(|at| from <= *at && *at < to)
            .unwrap_or_else(|| from.clone());
        let Some((_, scanned)) = scanned.filter(|(at, _)| *at == start) else {
            let limit = limit.saturating_add(1);
            let limit = limit.saturating_add(self.tables.hidden(&start, &to, limit.min(4096)));
            return Err(Later::Scan(Scan {
                from: start,
                to,
                limit,
                bytes,
            }));
        };
        // The part after the last entry of a truncated scan is unknown: leave it to the next
        // request.
        let known_to = match (scanned.more, scanned.entries.last()) {
            (true, Some((last, _))) => Bytes::from([&last[..], &[0]].concat()),
            _ => to.clone(),
        };
        let mut entries: BTreeMap<Bytes, Bytes> = scanned.entries.into_iter().collect();
        // Memory may have gained entries before `start` since the last scan; they belong to the
        // answer too.
        self.tables.overlay(&mut entries, &from, &known_to);
        if scanned.more && entries.is_empty() {
            *resume = Some(known_to);
            return self.merge(from, to, limit, bytes, None, resume);
        }
        Ok((entries, scanned.more))
    }

    /// Fails all waiting reads: the index is unreadable.
    pub(super) fn fail_reads(&mut self) {
        for (_, waiter) in std::mem::take(&mut self.reads.waiting) {
            self.events
                .push(Event::Read(waiter.token, Err(ReadError::IndexCorrupt)));
        }
    }

    /// Reads old contents for partial overwrites of the waiting transaction.
    pub(super) fn load_old_blocks(&mut self, blocks: Vec<(u64, u32)>) {
        let now = self.applied;
        let under_way = |purpose: &Purpose| match purpose {
            Purpose::Old { unit, applied, .. } if *applied == now => Some(*unit),
            _ => None,
        };
        let mut under_way: BTreeSet<u64> = self.ios.values().filter_map(under_way).collect();
        for (unit, crc) in blocks {
            if under_way.insert(unit) {
                let read = IoKind::Read {
                    offset: unit * BLOCK_U64,
                    length: BLOCK,
                };
                self.io(
                    Purpose::Old {
                        unit,
                        crc,
                        applied: now,
                    },
                    read,
                );
            }
        }
    }
}

fn zeros(length: u64) -> impl Iterator<Item = Bytes> {
    let whole = (0..length / BLOCK_U64).map(|_| Bytes::from_static(&ZEROS));
    let rest = (length % BLOCK_U64) as usize;
    whole.chain((rest > 0).then(|| Bytes::from_static(&ZEROS[..rest])))
}

fn assemble(pieces: &[Piece], parts: &[Part]) -> Vec<Bytes> {
    let bytes = |piece: &Piece| match piece {
        Piece::Memory(bytes) => bytes.clone(),
        Piece::Part {
            part,
            start,
            length,
        } => {
            let data = parts[*part]
                .data
                .as_ref()
                .expect("a read is assembled when all its parts are there");
            data.slice(*start..start + length)
        }
    };
    pieces.iter().map(bytes).collect()
}
