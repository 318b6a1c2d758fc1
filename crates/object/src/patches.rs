//! Ranges of an object's data that an operation has written, on top of the old data.
//!
//! Invariant: ranges are not empty and do not overlap; each byte has its newest write.

use bytes::Bytes;
use std::collections::BTreeMap;

/// What covers a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Patch {
    /// These bytes, as many as the range is long.
    Data(Vec<Bytes>),
    /// Zeros.
    Zeros,
}

impl Patch {
    fn slice(&self, from: u64, to: u64) -> Self {
        match self {
            Self::Data(pieces) => Self::Data(crate::fetched::slice(pieces, from, to)),
            Self::Zeros => Self::Zeros,
        }
    }
}

/// A part of a range: covered by a patch, or not.
#[derive(Debug, PartialEq, Eq)]
pub struct Part {
    /// First byte.
    pub offset: u64,
    /// End of the range, excluded.
    pub end: u64,
    /// What was written there; `None` if nothing.
    pub patch: Option<Patch>,
}

/// See the module head.
#[derive(Debug, Default)]
pub struct Patches(BTreeMap<u64, (u64, Patch)>);

impl Patches {
    /// Writes `offset..end`.
    pub fn put(&mut self, offset: u64, end: u64, patch: Patch) {
        if offset < end {
            self.cut(offset, end);
            self.0.insert(offset, (end, patch));
        }
    }

    /// Removes what was written to `offset..end`.
    pub fn cut(&mut self, offset: u64, end: u64) {
        let before = self
            .0
            .range(..offset)
            .next_back()
            .filter(|(_, (last, _))| *last > offset);
        let first = before.map_or(offset, |(from, _)| *from);
        let hit: Vec<u64> = self.0.range(first..end).map(|(from, _)| *from).collect();
        for from in hit {
            let (last, patch) = self.0.remove(&from).expect("just listed");
            if from < offset {
                self.0.insert(from, (offset, patch.slice(0, offset - from)));
            }
            if last > end {
                self.0
                    .insert(end, (last, patch.slice(end - from, last - from)));
            }
        }
    }

    /// The range, part by part.
    #[must_use]
    pub fn parts(&self, offset: u64, end: u64) -> Vec<Part> {
        let mut out = Vec::new();
        let mut at = offset;
        let before = self
            .0
            .range(..offset)
            .next_back()
            .filter(|(_, (last, _))| *last > offset);
        let first = before.map_or(offset, |(from, _)| *from);
        for (from, (last, patch)) in self.0.range(first..end) {
            let (begin, stop) = ((*from).max(offset), (*last).min(end));
            if begin > at {
                out.push(Part {
                    offset: at,
                    end: begin,
                    patch: None,
                });
            }
            out.push(Part {
                offset: begin,
                end: stop,
                patch: Some(patch.slice(begin - from, stop - from)),
            });
            at = stop;
        }
        if at < end {
            out.push(Part {
                offset: at,
                end,
                patch: None,
            });
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(patches: &Patches, offset: u64, end: u64) -> Vec<Option<u8>> {
        let mut out = Vec::new();
        for part in patches.parts(offset, end) {
            assert_eq!(
                part.offset - offset,
                out.len() as u64,
                "parts follow each other"
            );
            match part.patch {
                Some(Patch::Data(pieces)) => {
                    out.extend(pieces.iter().flatten().map(|byte| Some(*byte)))
                }
                Some(Patch::Zeros) => out.extend((part.offset..part.end).map(|_| Some(0))),
                None => out.extend((part.offset..part.end).map(|_| None)),
            }
        }
        out
    }

    proptest! {
        /// Compares with an array that records the last write of every byte.
        #[test]
        fn the_newest_write_of_every_byte_shows(steps in proptest::collection::vec((0..40_u64, 0..12_u64, 0..6_u8), 0..30), from in 0..40_u64, length in 0..50_u64) {
            let (mut patches, mut model) = (Patches::default(), vec![None; 100]);
            for (n, (offset, length, kind)) in steps.into_iter().enumerate() {
                let end = offset + length;
                let byte = n as u8 + 1;
                let value = match kind {
                    0 => { patches.cut(offset, end); None }
                    1 => { patches.put(offset, end, Patch::Zeros); Some(0) }
                    _ => {
                        let half = length / 2;
                        let piece = |n: u64| Bytes::from(vec![byte; n as usize]);
                        patches.put(offset, end, Patch::Data(vec![piece(half), piece(length - half)]));
                        Some(byte)
                    }
                };
                model[offset as usize..end as usize].fill(value);
            }
            prop_assert_eq!(read(&patches, from, from + length), &model[from as usize..(from + length) as usize]);
        }
    }
}
