//! Mutations for replays on stable: much weaker than libFuzzer's, but enough to find a parser that
//! trusts its input.

use nacre_types::SplitMix64;

/// Pseudo-random numbers from a seed, the same on every machine.
pub struct Dice(SplitMix64);

impl Dice {
    /// Begins with a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(SplitMix64(seed))
    }
    /// A number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        self.0.below(end.max(1) as u64) as usize
    }
}

/// One to eight changes of `input`, some of them with parts of `other`.
#[must_use]
pub fn mutate(dice: &mut Dice, input: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=dice.below(8) {
        let at = dice.below(bytes.len());
        let end = (at + dice.below(16)).min(bytes.len());
        match dice.below(8) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
            3 => {
                let from = dice.below(other.len());
                let to = (from + dice.below(64)).min(other.len());
                bytes.splice(at..end, other[from..to].iter().copied());
            }
            4 if !bytes.is_empty() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][dice.below(5)],
            5 if at + 4 <= bytes.len() => {
                bytes[at..at + 4].copy_from_slice(&[0xff, 0xff, 0xff, 0x7f])
            }
            _ if !bytes.is_empty() => bytes[at] ^= 1 << dice.below(8),
            _ => bytes.push(dice.below(256) as u8),
        }
    }
    bytes
}
