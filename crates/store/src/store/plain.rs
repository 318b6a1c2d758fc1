//! The short way of a plain overwrite, which nearly all updates of small objects are.
//!
//! ```text
//!  transaction ─▶ Plain::of ─▶ head in memory, block not shared, space ─▶ record, tables, blocks
//!                     │ no                    │ no
//!                     └───────────────────────┴──▶ the general way (`apply`)
//! ```
//! *Plain* is: one whole block of one object, its attributes, and entries of omaps whose numbers
//! are known. The general way does the same through an [`Attempt`](crate::apply::Attempt). Its code
//! is larger than a processor's first-level instruction cache, so it is fetched again for every
//! transaction, which takes as long as executing it.
//!
//! Invariant: both ways leave the same bytes in the log, on the device and in memory
//! (`tests/plain.rs` runs the same histories in both; the simulator's seeds give the same traces).

use super::{Queued, Store};
use crate::api::{ObjectKey, Op, Token, Transaction};
use crate::device::Device;
use crate::format::checksum::BlockData;
use crate::format::log::{Logged, group_length};
use crate::format::object::{BlockRef, Head, SHARD_BLOCKS};
use crate::format::value::Value;
use crate::format::{BLOCK, BLOCK_U64, keys};
use crate::tables::Pending;
use bytes::Bytes;
use smallvec::SmallVec;

/// The maximum number of omap entries that are set or removed.
const ENTRIES_MAX: usize = 8;
/// More than the encoding of a change takes besides keys, values and the former head.
const CHANGE_MAX: usize = 256;

/// Entries of omaps, in order of their keys.
type Records = SmallVec<[(Bytes, Option<Value>); 4]>;

/// A transaction that may be plain.
struct Plain<'t> {
    object: &'t ObjectKey,
    /// Of the object.
    index: usize,
    data: &'t [Bytes],
}

impl<'t> Plain<'t> {
    fn of(transaction: &'t Transaction) -> Option<Self> {
        let (mut object, mut block, mut entries) = (None, None, 0);
        for op in &transaction.ops {
            match op {
                Op::Write {
                    object: its,
                    offset,
                    data,
                } if block.is_none() && offset.is_multiple_of(BLOCK_U64) => {
                    let index = usize::try_from(offset / BLOCK_U64).ok()?;
                    let length: usize = data.iter().map(Bytes::len).sum();
                    if index >= SHARD_BLOCKS || length != BLOCK {
                        return None;
                    }
                    block = Some((index, &data[..]));
                    if *object.get_or_insert(its) != its {
                        return None;
                    }
                }
                Op::SetAttr { object: its, .. } => {
                    if *object.get_or_insert(its) != its {
                        return None;
                    }
                }
                Op::OmapSet { entries: set, .. } => entries += set.len(),
                Op::OmapRemove { keys, .. } => entries += keys.len(),
                _ => return None,
            }
        }
        let (index, data) = block.filter(|_| entries <= ENTRIES_MAX)?;
        Some(Self {
            object: object?,
            index,
            data,
        })
    }

    /// Where the block ends.
    fn end(&self) -> u64 {
        (self.index as u64 + 1) * BLOCK_U64
    }

    fn change(&self, head: &mut Head, block: BlockRef, transaction: &Transaction) {
        head.first.set_block(self.index, block);
        head.size = head.size.max(self.end());
        for op in &transaction.ops {
            if let Op::SetAttr { name, value, .. } = op {
                head.attrs.set(name, value);
            }
        }
    }

    fn content(&self) -> BlockData {
        match self.data {
            [one] => BlockData::One(one.clone()),
            many => BlockData::from_segments(
                many.iter()
                    .filter(|segment| !segment.is_empty())
                    .cloned()
                    .collect(),
            ),
        }
    }
}

/// Adds a record; a later one under the same key wins.
fn set(records: &mut Records, key: Bytes, value: Option<Value>) {
    match records.binary_search_by(|(known, _)| known.cmp(&key)) {
        Ok(at) => records[at].1 = value,
        Err(at) => records.insert(at, (key, value)),
    }
}

impl<D: Device> Store<D> {
    /// The entries of omaps that a transaction sets and removes, if the numbers of all are known.
    fn omap_records(&self, transaction: &Transaction) -> Option<Records> {
        let mut records = Records::new();
        for op in &transaction.ops {
            match op {
                Op::OmapSet { object, entries } => {
                    let number = *self.tables.omap_numbers.get(object)?;
                    for (key, value) in entries {
                        let value = Some(value.clone().into());
                        set(&mut records, keys::omap(number, key), value);
                    }
                }
                Op::OmapRemove { object, keys } => {
                    let number = *self.tables.omap_numbers.get(object)?;
                    for key in keys {
                        set(&mut records, keys::omap(number, key), None);
                    }
                }
                _ => {}
            }
        }
        Some(records)
    }

    /// Applies the first transaction of the queue, if it is plain and nothing is in its way.
    pub(super) fn apply_plain(&mut self) -> bool {
        let Some(Queued {
            token,
            transaction,
            size,
            promise,
        }) = self.queue.front()
        else {
            return false;
        };
        let by_log = promise.units * BLOCK_U64 > self.limits.deferred_transaction_max;
        if self.past_log || by_log || self.limits.deferred_write_max < BLOCK {
            return false;
        }
        let (token, size, promise) = (*token, *size, *promise);
        let Some(plain) = Plain::of(transaction) else {
            return false;
        };
        let Some(records) = self.omap_records(transaction) else {
            return false;
        };
        let key = keys::head_on_stack(plain.object);
        let Some(place) = self.tables.place_of(&key) else {
            return false;
        };
        let head = self.tables.head_in(&place);
        let before = head.first.block(plain.index);
        if before.shared || head.has_omap || !head.inline.is_empty() {
            return false;
        }
        let to_fresh =
            !self.is_alone() && head.size.max(plain.end()) <= self.limits.small_object_max;
        if !to_fresh && before.is_hole() {
            return false;
        }
        let most = self.building.meta.len() + size + head.encoded_len() + CHANGE_MAX;
        let most = group_length(most, self.building.payload.len() + 1);
        if self.head - self.tail + most > self.layout.wal_length {
            return false;
        }
        let unit = if to_fresh {
            let left = match plain.index {
                0 => BlockRef::default(),
                index => head.first.block(index - 1),
            };
            let near = if left.is_hole() {
                self.cursor
            } else {
                left.unit + 1
            };
            let Some(runs) = self.allocator.lock().take_small(1, near) else {
                return false;
            };
            runs[0].0
        } else {
            before.unit
        };

        // From here on nothing can stop it.
        let content = plain.content();
        let block = BlockRef {
            unit,
            crc: content.crc(),
            shared: false,
        };
        let given_back = (to_fresh && !before.is_hole()).then_some((before.unit, 1));
        let fresh = to_fresh.then_some((unit, 1));
        let at = self.tables.activate(place, &key);
        self.tables.active.change_head(at, |head| {
            plain.change(head, block, transaction);
            Logged {
                next_number: self.next_number,
                allocated: fresh.as_slice(),
                freed: given_back.as_slice(),
                head: Some((&key, head)),
                records: &records,
                blocks: (!to_fresh).then_some(unit).as_slice(),
                beside: to_fresh.then_some((unit, block.crc)).as_slice(),
                ..Logged::default()
            }
            .encode_into(&mut self.building.meta);
        });
        self.usage.borders.plain_overwrites += 1;
        let queued = self.queue.pop_front().expect("just looked at");
        self.taken(size, promise);
        self.adopt_plain(token, records, content, unit, to_fresh, given_back);
        drop(queued);
        true
    }

    /// Makes it visible, as [`Self::adopt`] does with an attempt's result.
    fn adopt_plain(
        &mut self,
        token: Token,
        records: Records,
        content: BlockData,
        unit: u64,
        to_fresh: bool,
        given_back: Option<(u64, u32)>,
    ) {
        self.applied += 1;
        let transaction = self.applied;
        for (key, value) in records {
            self.set_record(key, value);
        }
        let pending = Pending {
            data: content.clone(),
            transaction,
            beside: to_fresh,
        };
        if to_fresh {
            self.mark_dirty(unit, 1);
            self.usage.borders.beside_writes += 1;
            self.usage.beside_bytes += BLOCK_U64;
            self.building.beside.insert(unit, content);
        } else {
            self.building.payload.push(content);
        }
        self.pending.insert(unit, pending);
        if let Some((unit, count)) = given_back {
            self.mark_dirty(unit, count);
            self.free_later(transaction, SmallVec::from_buf([(unit, count)]));
        }
        self.applied_one(token);
    }
}
