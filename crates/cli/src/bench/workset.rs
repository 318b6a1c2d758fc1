//! The objects of a benchmark: their names, their written contents, and valid results of reads.
//!
//! The content is derived from (run, object, sequence) in every block, so that a block of another
//! object, of another time, or torn between two writes is recognised.

use crate::objects::operation;
use bytes::{Bytes, BytesMut};
use nacre_client::{Done, Operation};
use nacre_types::{ObjectId, PoolId, random::mix};
use nacre_wire::Payload;
use nacre_wire::msg::client::{SubOp, SubReply};

/// Every block begins with its identity, followed by noise derived from that.
const BLOCK: usize = 4096;
/// The omap key that is set.
const KEY: &[u8] = b"bench";

/// Where an object's bytes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// In its data, which are replaced completely.
    Data,
    /// In the value of one key of its omap.
    Omap,
}

const WORDS: usize = BLOCK / 8;

/// One block of noise.
static NOISE: [u64; WORDS] = {
    let mut noise = [0; WORDS];
    let mut at = 0;
    while at < WORDS {
        noise[at] = mix((at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        at += 1;
    }
    noise
};

/// The content of an object after its write number `sequence`: in every block the same noise with
/// another mask, which costs next to nothing compared with the operation (a random number for every
/// word was 5 % of a write of 4 MiB).
fn content(run: u64, object: u64, sequence: u64, size: u64) -> Bytes {
    let size = usize::try_from(size).expect("at most an operation's bytes");
    let mut data = BytesMut::with_capacity(size);
    let mut words = [0; BLOCK];
    for block in 0_u64.. {
        let left = size - data.len();
        if left == 0 {
            break;
        }
        let mask = mix(run
            ^ object.rotate_left(20)
            ^ sequence.rotate_left(40)
            ^ (block + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for (to, noise) in words.chunks_exact_mut(8).zip(&NOISE) {
            to.copy_from_slice(&(noise ^ mask).to_le_bytes());
        }
        data.extend_from_slice(&words[..left.min(BLOCK)]);
    }
    data.freeze()
}

/// State of a benchmark's objects.
pub struct Workset {
    /// Their pool.
    pub pool: PoolId,
    /// Distinguishes this benchmark's objects from others'.
    pub run: u64,
    /// Bytes of each.
    pub size: u64,
    /// The part of them that is written and read.
    pub part: Part,
    /// Number of the last write of each object that was begun; 0: none.
    pub begun: Vec<u64>,
    /// Number of the last certain write: the content may be that of any write since, whose result
    /// is unknown.
    pub certain: Vec<u64>,
}

impl Workset {
    /// An object's name.
    pub fn name(&self, index: usize) -> ObjectId {
        ObjectId::named(&format!("bench-{:016x}-{index:08}", self.run))
    }
    /// Its next write, with the write's number.
    pub fn write(&mut self, index: usize) -> (Operation, u64) {
        self.begun[index] += 1;
        let sequence = self.begun[index];
        let data = content(self.run, index as u64, sequence, self.size);
        let (op, payload) = match self.part {
            Part::Data if data.is_empty() => (SubOp::WriteFull { length: 0 }, Payload::new()),
            Part::Data => (SubOp::WriteFull { length: self.size }, vec![data]),
            Part::Omap => (
                SubOp::OmapSet {
                    entries: vec![(Bytes::from_static(KEY), data)],
                },
                Payload::new(),
            ),
        };
        (
            operation(self.pool, self.name(index), vec![op], payload),
            sequence,
        )
    }
    /// A read of it.
    pub fn read(&self, index: usize) -> Operation {
        let op = match self.part {
            Part::Data => SubOp::Read {
                offset: 0,
                length: self.size,
            },
            Part::Omap => SubOp::OmapGet {
                keys: vec![Bytes::from_static(KEY)],
            },
        };
        operation(self.pool, self.name(index), vec![op], Payload::new())
    }
    /// A removal of it.
    pub fn remove(&self, index: usize) -> Operation {
        operation(
            self.pool,
            self.name(index),
            vec![SubOp::Delete {}],
            Payload::new(),
        )
    }
    /// Number of bytes found by [`Self::read`].
    pub fn found_len(&self, done: &Done) -> u64 {
        match self.part {
            Part::Data => nacre_wire::msg::payload_len(&done.payload) as u64,
            Part::Omap => value(done).map_or(0, |value| value.len() as u64),
        }
    }
    /// Whether the result of [`Self::read`] is the content of one of the writes since the last
    /// certain one.
    pub fn is_right(&self, index: usize, done: &Done) -> bool {
        let data = match self.part {
            Part::Data => Bytes::from(done.payload.concat()),
            Part::Omap => value(done).cloned().unwrap_or_default(),
        };
        let wrote = |sequence| data == content(self.run, index as u64, sequence, self.size);
        (self.certain[index].max(1)..=self.begun[index]).any(wrote)
    }
    /// Objects that were written, or may have been.
    pub fn touched(&self) -> impl Iterator<Item = usize> {
        (0..self.begun.len()).filter(|index| self.begun[*index] > 0)
    }
}

fn value(done: &Done) -> Option<&Bytes> {
    match &done.results[..] {
        [SubReply::Entries { entries, .. }] => entries
            .iter()
            .find(|(key, _)| key == KEY)
            .map(|(_, value)| value),
        _ => None,
    }
}

/// Random numbers; the state is never zero.
pub fn draw(state: &mut u64) -> u64 {
    // xorshift64*
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

/// All numbers below `count`, each once, in a random order.
pub fn shuffled(count: u64, state: &mut u64) -> Vec<u64> {
    let mut all: Vec<u64> = (0..count).collect();
    for at in (1..all.len()).rev() {
        let other = draw(state) % (at as u64 + 1);
        all.swap(at, usize::try_from(other).expect("an index"));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(part: Part) -> Workset {
        Workset {
            pool: PoolId(1),
            run: 5,
            size: 100,
            part,
            begun: vec![0],
            certain: vec![0],
        }
    }

    #[test]
    fn content_tells_objects_writes_and_blocks_apart() {
        let one = content(1, 2, 3, 10_000);
        assert_eq!(one.len(), 10_000);
        assert_eq!(one, content(1, 2, 3, 10_000));
        for other in [
            content(9, 2, 3, 10_000),
            content(1, 9, 3, 10_000),
            content(1, 2, 9, 10_000),
        ] {
            for at in [0, BLOCK, 2 * BLOCK] {
                assert_ne!(one[at..at + 64], other[at..at + 64]);
            }
        }
        assert_ne!(one[..64], one[BLOCK..BLOCK + 64]);
        assert_eq!(content(1, 2, 3, 13), one[..13]);
    }

    #[test]
    fn what_was_written_last_or_may_have_been_is_right_and_nothing_else() {
        for part in [Part::Data, Part::Omap] {
            let mut objects = set(part);
            for _ in 0..4 {
                objects.write(0);
            }
            objects.certain[0] = 3;
            let done = |results, payload| Done {
                version: nacre_types::Version::default(),
                results,
                payload,
            };
            let read = |data: Bytes| match part {
                Part::Data => done(
                    vec![SubReply::Data {
                        length: data.len() as u64,
                    }],
                    vec![data],
                ),
                Part::Omap => {
                    let entries = vec![(Bytes::from_static(KEY), data)];
                    done(
                        vec![SubReply::Entries {
                            entries,
                            more: false,
                        }],
                        Payload::new(),
                    )
                }
            };
            let data = |sequence| read(content(5, 0, sequence, 100));
            assert!(objects.is_right(0, &data(3)) && objects.is_right(0, &data(4)));
            assert!(!objects.is_right(0, &data(2)) && !objects.is_right(0, &data(5)));
            assert_eq!(objects.found_len(&data(3)), 100);
            let mut torn = content(5, 0, 4, 100)[..50].to_vec();
            torn.extend_from_slice(&content(5, 0, 3, 100)[50..]);
            assert!(!objects.is_right(0, &read(torn.into())));
            assert!(
                !objects.is_right(0, &done(Vec::new(), Payload::new())),
                "nothing was found"
            );
        }
    }

    #[test]
    fn every_object_comes_once() {
        let mut order = shuffled(1000, &mut 7);
        assert_ne!(order, (0..1000).collect::<Vec<u64>>());
        order.sort_unstable();
        assert_eq!(order, (0..1000).collect::<Vec<u64>>());
        assert!(shuffled(0, &mut 7).is_empty());
    }
}
