//! Mutations for replays on stable: much weaker than libFuzzer's, but enough to find a parser that
//! trusts its input.

/// Pseudo-random numbers from a seed, the same on every machine.
pub struct Dice(pub u64);

impl Dice {
    /// A number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end.max(1)
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
