//! Cloning an omap that is too large for one piece: it is copied in slices before the transaction
//! that clones it.
//!
//! ```text
//!  transaction ──Stop::Fill──▶ scan a slice of the source ──▶ log it under the copy's number ──▶ … ──▶ transaction, with the number
//! ```
//! Each slice is a change in the log like any other, with a number in the order of transactions but
//! without a token; between slices the log is truncated and memory is freed as usual. Nothing
//! refers to the copy before the transaction is applied, and no later transaction is applied
//! meanwhile, so the source does not change. The record `07 number` marks a copy as unfinished: the
//! transaction removes the record, and a store that finds it at its opening removes the copy.

use super::Store;
use super::lookup::{Scan, ScanFor};
use crate::device::Device;
use crate::format::keys;
use crate::format::log::Change;
use crate::index::Scanned;
use bytes::Bytes;
use std::collections::BTreeMap;

pub(super) struct Filling {
    /// Index in the transaction of the operation that clones.
    op: usize,
    /// The copy's number.
    number: u64,
    begun: bool,
    /// Key of the source's next entry, and the end of its entries.
    from: Bytes,
    to: Bytes,
    /// The entries of the index from there on.
    pub(super) found: Option<Scanned>,
}

impl<D: Device> Store<D> {
    pub(super) fn start_filling(&mut self, op: usize, source: u64) {
        let number = self.next_number;
        self.next_number += 1;
        let (from, to) = (keys::omap(source, &[]), keys::end(keys::TAG_OMAP, source));
        self.filling = Some(Filling {
            op,
            number,
            begun: false,
            from,
            to,
            found: None,
        });
    }

    /// Copies the next slice, if it was read; returns whether the copy is finished.
    pub(super) fn fill(&mut self) -> bool {
        while let Some(filling) = &mut self.filling {
            let slice = self.limits.clone_slice_bytes;
            let Some(found) = &filling.found else {
                let (from, to) = (filling.from.clone(), filling.to.clone());
                self.lookups.want_scan(
                    ScanFor::Fill,
                    Scan {
                        from,
                        to,
                        limit: usize::MAX,
                        bytes: slice,
                    },
                );
                return false;
            };
            let after = |key: &Bytes| Bytes::from([&key[..], &[0]].concat());
            let end = match found.entries.last() {
                Some((last, _)) if found.more => after(last),
                _ => filling.to.clone(),
            };
            let mut entries: BTreeMap<Bytes, Bytes> = found.entries.iter().cloned().collect();
            self.tables.overlay(&mut entries, &filling.from, &end);
            let mut change = Change {
                next_number: self.next_number,
                ..Change::default()
            };
            if !filling.begun {
                change
                    .records
                    .push((keys::filling(filling.number), Some(Bytes::new().into())));
            }
            // Memory may have had more entries in this range than the index.
            let (mut bytes, mut next) = (0, end);
            for (key, value) in entries {
                bytes += key.len() + value.len();
                if bytes > slice && !change.records.is_empty() {
                    next = if crate::mutant(crate::Mutant::SliceSkipsOne) {
                        Bytes::from([&key[..], &[0]].concat())
                    } else {
                        key
                    };
                    break;
                }
                change.records.push((
                    keys::omap(filling.number, &keys::rest(&key)),
                    Some(value.into()),
                ));
            }
            let finished = next >= filling.to;
            if !self.log(&change, 0) {
                self.stalled = true;
                return false;
            }
            let filling = self.filling.as_mut().expect("just looked at");
            (filling.begun, filling.from, filling.found) = (true, next, None);
            if finished {
                self.filled.insert(filling.op, filling.number);
                self.filling = None;
            }
            self.usage.borders.clone_slices += 1;
            self.adopt_slice(change);
            if self.must_stall() {
                return false;
            }
        }
        true
    }

    /// As for a transaction, which precedes all that are submitted and not applied.
    fn adopt_slice(&mut self, change: Change) {
        if self.requested > self.applied {
            self.requested += 1;
        }
        self.reads.one_more_before(self.applied);
        self.applied += 1;
        self.submitted += 1;
        for (key, value) in change.records {
            self.tables.active.set(key, value);
        }
        self.building.tokens.push(None);
    }
}
