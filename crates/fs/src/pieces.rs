//! The objects of a range of a file, and the operations on each (CEPH-05).

use bytes::Bytes;
use nacre_wire::Payload;
use nacre_wire::fs::Layout;
use nacre_wire::msg::client::SubOp;
use std::collections::{BTreeMap, VecDeque};

/// A part of a range that is contiguous in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The object's number.
    pub number: u64,
    /// Offset in the object.
    pub offset: u64,
    pub length: u64,
}

/// The pieces of a range, in order.
pub(crate) fn pieces(layout: &Layout, offset: u64, length: u64) -> Vec<Piece> {
    let (mut at, end, mut pieces) = (offset, offset + length, Vec::<Piece>::new());
    while at < end {
        let (number, offset, together) = layout.place(at);
        let length = together.min(end - at);
        at += length;
        match pieces.last_mut() {
            Some(last) if last.number == number && last.offset + last.length == offset => {
                last.length += length
            }
            _ => pieces.push(Piece {
                number,
                offset,
                length,
            }),
        }
    }
    pieces
}

/// Whether a range lies in more than one object. If not, it is one piece.
pub(crate) fn spans(layout: &Layout, from: u64, to: u64) -> bool {
    let unit = u64::from(layout.unit);
    // Adjacent stripe units are in different objects, if there are several.
    let is_apart = |last: u64| {
        layout.place(from).0 != layout.place(last).0
            || (layout.count > 1 && from / unit != last / unit)
    };
    from < to && is_apart(to - 1)
}

/// The writes to each object: one atomic operation each.
pub(crate) fn writes(
    layout: &Layout,
    offset: u64,
    data: &[Bytes],
) -> BTreeMap<u64, (Vec<SubOp>, Payload)> {
    let mut data: VecDeque<Bytes> = data
        .iter()
        .filter(|part| !part.is_empty())
        .cloned()
        .collect();
    let length = data.iter().map(|part| part.len() as u64).sum();
    let mut writes = BTreeMap::<u64, (Vec<SubOp>, Payload)>::new();
    for Piece {
        number,
        offset,
        length,
    } in pieces(layout, offset, length)
    {
        let (ops, payload) = writes.entry(number).or_default();
        ops.push(SubOp::Write { offset, length });
        let mut left = usize::try_from(length).expect("a part of what is in memory");
        while left > 0 {
            let first = data
                .front_mut()
                .expect("the pieces are as long as the data");
            payload.push(if first.len() > left {
                first.split_to(left)
            } else {
                std::mem::take(first)
            });
            left -= payload.last().map_or(0, Bytes::len);
            data.pop_front_if(|first| first.is_empty());
        }
    }
    writes
}

/// A part of the data that was read, starting at an offset.
pub(crate) fn cut(parts: &[Bytes], skip: u64, length: u64) -> Vec<Bytes> {
    let (mut skip, mut left, mut cut) = (skip, length, Vec::new());
    for part in parts {
        let from = skip.min(part.len() as u64);
        let to = (from + left).min(part.len() as u64);
        skip -= from;
        left -= to - from;
        if from < to {
            let place = |at: u64| usize::try_from(at).expect("a place in memory");
            cut.push(part.slice(place(from)..place(to)));
        }
    }
    cut
}

/// A range that is read from objects, piece by piece.
#[derive(Debug)]
pub(crate) struct Gathering {
    /// The length of each piece, and its data if it has been read.
    pieces: Vec<(u64, Option<Vec<Bytes>>)>,
    left: usize,
}

impl Gathering {
    pub fn new(pieces: &[Piece]) -> Self {
        Self {
            pieces: pieces.iter().map(|piece| (piece.length, None)).collect(),
            left: pieces.len(),
        }
    }
    /// A piece has been read; returns all data, in the order of the file, if it was the last one.
    pub fn take(&mut self, index: usize, read: Vec<Bytes>) -> Option<Vec<Bytes>> {
        let (length, place) = &mut self.pieces[index];
        *place = Some(fill(read, *length));
        self.left -= 1;
        (self.left == 0).then(|| {
            self.pieces
                .drain(..)
                .filter_map(|(_, read)| read)
                .flatten()
                .collect()
        })
    }
}

/// A piece as it was read, padded with zeros: a missing or short object has a hole there.
fn fill(mut read: Vec<Bytes>, length: u64) -> Vec<Bytes> {
    let have: u64 = read.iter().map(|part| part.len() as u64).sum();
    let lacks =
        usize::try_from(length.saturating_sub(have)).expect("a part of what fits into memory");
    if lacks > 0 {
        read.push(Bytes::from(vec![0; lacks]));
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::PoolId;

    /// What is written in pieces is read in pieces: compared with a file in memory.
    #[test]
    fn what_is_written_in_pieces_is_where_it_is_read() {
        for (unit, count, units) in [(4096, 1, 1), (4096, 3, 2), (8192, 2, 4)] {
            let layout = Layout {
                pool: PoolId(1),
                unit,
                count,
                object: unit * units,
            };
            let mut objects = BTreeMap::<u64, Vec<u8>>::new();
            let mut file = Vec::new();
            for (turn, (offset, length)) in [
                (0, 10),
                (4090, 12),
                (30_000, 50_000),
                (100, 4096),
                (70_001, 1),
            ]
            .into_iter()
            .enumerate()
            {
                let data = Bytes::from(vec![turn as u8 + 1; length]);
                file.resize(file.len().max(offset + length), 0);
                file[offset..offset + length].copy_from_slice(&data);
                let parts = [data.slice(..length / 3), data.slice(length / 3..)];
                for (number, (ops, payload)) in writes(&layout, offset as u64, &parts) {
                    let mut payload = payload.concat();
                    for op in ops {
                        let SubOp::Write { offset, length } = op else {
                            unreachable!("writes only")
                        };
                        let (offset, length) = (offset as usize, length as usize);
                        let bytes: Vec<u8> = payload.drain(..length).collect();
                        assert!(offset + length <= layout.object as usize);
                        let object = objects.entry(number).or_default();
                        object.resize(object.len().max(offset + length), 0);
                        object[offset..offset + length].copy_from_slice(&bytes);
                    }
                }
                for (from, length) in [
                    (0, file.len()),
                    (4000, 200),
                    (8191, 20_000.min(file.len().saturating_sub(8191))),
                ] {
                    let mut read = Vec::new();
                    for Piece {
                        number,
                        offset,
                        length,
                    } in pieces(&layout, from as u64, length as u64)
                    {
                        let object = objects.get(&number).map_or(&[][..], |object| object);
                        let from = object.len().min(offset as usize);
                        let to = object.len().min((offset + length) as usize);
                        let parts = fill(vec![Bytes::copy_from_slice(&object[from..to])], length);
                        read.extend(parts.iter().flat_map(|part| part.iter().copied()));
                    }
                    let expected: Vec<u8> = file
                        .iter()
                        .copied()
                        .skip(from)
                        .chain(std::iter::repeat(0))
                        .take(length)
                        .collect();
                    assert!(read == expected, "{layout:?} {turn} {from} {length}");
                }
            }
        }
    }

    /// An object of a file that is not striped is read in one piece, however small the units.
    #[test]
    fn units_that_follow_each_other_are_one_piece() {
        let layout = Layout {
            pool: PoolId(1),
            unit: 4096,
            count: 1,
            object: 1 << 20,
        };
        let all = pieces(&layout, 100, (1 << 20) + 50);
        assert_eq!(
            all,
            [
                Piece {
                    number: 0,
                    offset: 100,
                    length: (1 << 20) - 100
                },
                Piece {
                    number: 1,
                    offset: 0,
                    length: 150
                }
            ]
        );
    }
}
