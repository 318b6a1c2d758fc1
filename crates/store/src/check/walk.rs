//! The walk of the check: every record once, in order of the keys.
//!
//! ```text
//!  collections · heads, each with its further shards (and data) · shards · omaps     then: units beside reference counts, in order
//!                  │ number, 8 B                              ▲       ▲
//!                  └──────────── sorted: owners of shards and omaps    ┘
//! ```
//! In memory: [`Units`], 8 B per object, and a page of records.

use super::units::Units;
use super::{CheckOptions, Finding, Report};
use crate::api::CollectionId;
use crate::device::{BlockingDevice, DeviceError};
use crate::format::checksum::crc32c;
use crate::format::keys;
use crate::format::object::{BlockRef, Head, REFERENCE_UNITS, References, SHARD_BLOCKS, Shard};
use crate::format::root::Layout;
use crate::format::{BLOCK, BLOCK_U64};
use crate::index::{Index, IndexError};
use crate::replay::Replay;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of records read at once, and their bytes.
const PAGE: (usize, usize) = (1024, 1 << 20);

/// The data that the walk reads.
pub(super) struct Source<'s> {
    pub(super) index: &'s Index,
    pub(super) device: &'s dyn BlockingDevice,
    pub(super) layout: Layout,
    pub(super) replay: &'s Replay,
}

impl Source<'_> {
    /// Calls `what` for each record from one key to another.
    fn each(
        &self,
        from: &[u8],
        to: &[u8],
        mut what: impl FnMut(&Bytes, &Bytes) -> Result<(), IndexError>,
    ) -> Result<(), IndexError> {
        let mut from = from.to_vec();
        loop {
            let scanned = self.index.scan(&from, to, PAGE.0, PAGE.1)?;
            for (key, record) in &scanned.entries {
                what(key, record)?;
            }
            match scanned.entries.last() {
                Some((last, _)) if scanned.more => from = [&last[..], &[0]].concat(),
                _ => return Ok(()),
            }
        }
    }

    /// The content of a block after the log is replayed.
    fn block(&self, unit: u64, out: &mut [u8]) -> Result<(), DeviceError> {
        match self
            .replay
            .read_block(self.device, &self.layout, unit, out)?
        {
            true => Ok(()),
            false => self.device.read_at(unit * BLOCK_U64, out),
        }
    }
}

/// An object's number, and the kinds of records that exist under it in the index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Number(u64);
impl Number {
    const SHARDS: u64 = 1 << 63;
    const OMAP: u64 = 1 << 62;
    /// No store assigns numbers this large.
    const MAX: u64 = Self::OMAP - 1;

    fn of(head: &Head) -> Self {
        let shards = if head.shards_in(0..u32::MAX).next().is_some() {
            Self::SHARDS
        } else {
            0
        };
        Self(head.number.min(Self::MAX) | shards | if head.has_omap { Self::OMAP } else { 0 })
    }
    fn number(self) -> u64 {
        self.0 & Self::MAX
    }
}

pub(super) struct Walk<'w> {
    source: Source<'w>,
    options: CheckOptions,
    report: &'w mut Report,
    units: Units,
    objects: BTreeMap<CollectionId, u64>,
    counts: BTreeMap<CollectionId, u64>,
    /// Sorted after all heads have been read.
    numbers: Vec<Number>,
    /// The last number that was looked up, and whether records of that kind may exist under it:
    /// records of one object are adjacent.
    owner: Option<(u8, u64, bool)>,
    content: Vec<u8>,
}

impl<'w> Walk<'w> {
    pub(super) fn new(
        source: Source<'w>,
        options: CheckOptions,
        units: Units,
        report: &'w mut Report,
    ) -> Self {
        Self {
            source,
            options,
            report,
            units,
            objects: BTreeMap::new(),
            counts: BTreeMap::new(),
            numbers: Vec::new(),
            owner: None,
            content: vec![0; BLOCK],
        }
    }

    /// Walks everything; findings go to the report.
    pub(super) fn run(mut self) -> Result<(), IndexError> {
        let source = Source { ..self.source };
        let (mut weight, mut recorded, mut sorted) = (0, None, false);
        source.each(&[keys::TAG_COLLECTION], &[0xff], |key, record| {
            weight += keys::weight(key, record.len());
            if key[0] > keys::TAG_HEAD && !sorted {
                sorted = true;
                self.sort_numbers();
            }
            match &key[..] {
                keys::INDEX_BYTES => recorded = record[..].try_into().ok().map(u64::from_le_bytes),
                _ if self.record(key, record)? => {}
                _ => self.report.add(Finding::Record(key.clone())),
            }
            Ok(())
        })?;
        if !sorted {
            self.sort_numbers();
        }
        if recorded != Some(weight) {
            self.report
                .add(Finding::Record(Bytes::from_static(keys::INDEX_BYTES)));
        }
        self.accounts()?;
        self.collections();
        Ok(())
    }

    /// Whether a record is well-formed and at a valid place.
    fn record(&mut self, key: &Bytes, record: &Bytes) -> Result<bool, IndexError> {
        Ok(match (key[0], keys::number(key)) {
            (keys::TAG_BITMAP, _) => true,
            (keys::TAG_COLLECTION, Some(id)) => match record[..].try_into() {
                Ok(count) => self
                    .counts
                    .insert(CollectionId(id), u64::from_le_bytes(count))
                    .is_none(),
                Err(_) => false,
            },
            (keys::TAG_REFERENCES, Some(_)) => References::decode(record)
                .is_some_and(|References(counts)| counts.values().all(|&count| count > 1)),
            (keys::TAG_HEAD, Some(id)) => match Head::decode(record) {
                Some(head) => {
                    *self.objects.entry(CollectionId(id)).or_default() += 1;
                    self.numbers.push(Number::of(&head));
                    self.object(key, &head)?
                }
                None => false,
            },
            (keys::TAG_SHARD, Some(number)) => {
                Shard::decode(record).is_some()
                    && keys::shard_number(key).is_some()
                    && self.is_owned(keys::TAG_SHARD, number)
            }
            (keys::TAG_OMAP, Some(number)) => {
                self.report.omap_entries += 1;
                self.is_owned(keys::TAG_OMAP, number)
            }
            _ => false,
        })
    }

    fn sort_numbers(&mut self) {
        self.numbers.sort_unstable_by_key(|number| number.number());
        let next = self.source.replay.state.next_number;
        let twice = self
            .numbers
            .windows(2)
            .any(|two| two[0].number() == two[1].number());
        if twice
            || self
                .numbers
                .last()
                .is_some_and(|last| last.number() >= next)
        {
            self.report
                .add(Finding::Record(Bytes::from_static(keys::STATE)));
        }
    }

    /// Whether a head declares records of this kind under its number.
    fn is_owned(&mut self, tag: u8, number: u64) -> bool {
        if let Some((of, last, owned)) = self.owner
            && (of, last) == (tag, number)
        {
            return owned;
        }
        let flag = if tag == keys::TAG_SHARD {
            Number::SHARDS
        } else {
            Number::OMAP
        };
        let at = self
            .numbers
            .binary_search_by_key(&number, |number| number.number());
        let owned = at.is_ok_and(|at| self.numbers[at].0 & flag != 0);
        self.owner = Some((tag, number, owned));
        owned
    }

    /// Checks a head with everything that it names, except its omap.
    fn object(&mut self, key: &Bytes, head: &Head) -> Result<bool, IndexError> {
        self.report.objects += 1;
        let before = self.report.blocks;
        let mut sound = self.shard(key, head, 0, &head.first);
        let mut named = head.shards_in(0..u32::MAX).peekable();
        if named.peek().is_some() {
            let source = Source { ..self.source };
            let (from, to) = (
                keys::shard(head.number, 0),
                keys::end(keys::TAG_SHARD, head.number),
            );
            source.each(&from, &to, |record_key, record| {
                // The check of the shards reports errors of these keys and records themselves.
                let Some(n) = keys::shard_number(record_key) else {
                    return Ok(());
                };
                while named.next_if(|&next| next < n).is_some() {
                    sound = false;
                }
                match (named.next_if_eq(&n), Shard::decode(record)) {
                    (Some(_), Some(shard)) => sound &= self.shard(key, head, n, &shard),
                    (Some(_), None) => sound = false,
                    (None, _) => self.report.add(Finding::Record(record_key.clone())),
                }
                Ok(())
            })?;
            sound &= named.next().is_none();
        }
        sound &= head.inline.is_empty() || self.report.blocks == before;
        Ok(sound && head.inline.len() as u64 <= head.size)
    }

    fn shard(&mut self, key: &Bytes, head: &Head, n: u32, shard: &Shard) -> bool {
        let base = u64::from(n) * SHARD_BLOCKS as u64;
        let mut sound = true;
        for (index, block) in (base..)
            .zip((0..SHARD_BLOCKS).map(|at| shard.block(at)))
            .filter(|(_, block)| !block.is_hole())
        {
            self.report.blocks += 1;
            sound &= index * BLOCK_U64 < head.size;
            sound &= self.units.used(block.unit, !block.shared);
            if self.options.data {
                self.data(key, head, index, &block);
            }
        }
        sound
    }

    fn data(&mut self, key: &Bytes, head: &Head, index: u64, block: &BlockRef) {
        let read = self.source.block(block.unit, &mut self.content);
        let whole = read.is_ok() && crc32c(&self.content) == block.crc;
        let tail = (head.size - (index * BLOCK_U64).min(head.size)).min(BLOCK_U64) as usize;
        if !whole || self.content[tail..].iter().any(|&byte| byte != 0) {
            let collection = CollectionId(keys::number(key).unwrap_or_default());
            self.report.add(Finding::Data {
                collection,
                key: keys::rest(key),
                offset: index * BLOCK_U64,
            });
        }
    }

    /// Compares the users of units with the allocation and the recorded counts.
    fn accounts(&mut self) -> Result<(), IndexError> {
        let source = Source { ..self.source };
        let mut next = source.layout.first_unit();
        let (from, to) = ([keys::TAG_REFERENCES], [keys::TAG_REFERENCES + 1]);
        source.each(&from, &to, |key, record| {
            let (Some(group), Some(References(counts))) =
                (keys::number(key), References::decode(record))
            else {
                return Ok(());
            };
            for (at, recorded) in counts {
                // A unit past the device's end is as wrong as a count without users.
                let unit = group
                    .saturating_mul(REFERENCE_UNITS)
                    .saturating_add(at.into());
                self.units_until(&mut next, unit);
                self.unit(unit, Some(recorded));
                next = next.max(unit.saturating_add(1));
            }
            Ok(())
        })?;
        self.units_until(&mut next, u64::MAX);
        Ok(())
    }

    /// Checks units without a recorded count, from `next` to before `unit`.
    fn units_until(&mut self, next: &mut u64, unit: u64) {
        let end = unit.min(self.source.layout.units());
        while *next < end {
            self.unit(*next, None);
            *next += 1;
        }
    }

    fn unit(&mut self, unit: u64, recorded: Option<u32>) {
        let users = self.units.users(unit);
        let recorded = recorded.unwrap_or(users.min(1));
        if (self.source.layout.first_unit()..self.source.layout.units()).contains(&unit) {
            match (users > 0, self.units.is_taken(unit)) {
                (true, false) => self.report.add(Finding::Unmarked(unit)),
                (false, true) => self.report.add(Finding::Leaked(unit)),
                _ => {}
            }
        }
        if users != recorded || (users > 1 && self.units.is_exclusive(unit)) {
            self.report.add(Finding::References {
                unit,
                found: users,
                recorded,
            });
        }
    }

    fn collections(&mut self) {
        let ids: BTreeSet<CollectionId> = self
            .counts
            .keys()
            .chain(self.objects.keys())
            .copied()
            .collect();
        for id in ids {
            if self.counts.get(&id).copied() != Some(self.objects.get(&id).copied().unwrap_or(0)) {
                self.report.add(Finding::Count(id));
            }
        }
    }
}
