//! Robert Jenkins' 32-bit mix, in the two shapes that placement uses.
//!
//! * [`hash32_2`] … [`hash32_4`]: over a few integers; every draw of CRUSH (Weil et al., SC 2006)
//!   is one of these.
//! * [`name_hash`]: over bytes; object names become numbers with it.
//!
//! Both are part of the cluster's compatibility contract: a changed bit moves data. The vectors in
//! `tests/golden` check them.

/// The constant with which Ceph starts the integer hash.
const SEED: u32 = 1_315_423_911;
/// Padding words that are mixed in where there are no more arguments.
const PAD: (u32, u32) = (231_232, 1232);

/// One round of Jenkins' reversible mix (evahash, public domain).
#[inline(always)]
fn mix(a: &mut u32, b: &mut u32, c: &mut u32) {
    for (left, mid, right) in [(13, 8, 13), (12, 16, 5), (3, 10, 15)] {
        *a = a.wrapping_sub(*b).wrapping_sub(*c) ^ (*c >> left);
        *b = b.wrapping_sub(*c).wrapping_sub(*a) ^ (*a << mid);
        *c = c.wrapping_sub(*a).wrapping_sub(*b) ^ (*b >> right);
    }
}

/// The hash of two numbers.
#[must_use]
pub fn hash32_2(mut a: u32, mut b: u32) -> u32 {
    let mut hash = SEED ^ a ^ b;
    let (mut x, mut y) = PAD;
    mix(&mut a, &mut b, &mut hash);
    mix(&mut x, &mut a, &mut hash);
    mix(&mut b, &mut y, &mut hash);
    hash
}

/// The hash of three numbers.
#[inline(always)]
#[must_use]
pub fn hash32_3(mut a: u32, mut b: u32, mut c: u32) -> u32 {
    let mut hash = SEED ^ a ^ b ^ c;
    let (mut x, mut y) = PAD;
    mix(&mut a, &mut b, &mut hash);
    mix(&mut c, &mut x, &mut hash);
    mix(&mut y, &mut a, &mut hash);
    mix(&mut b, &mut x, &mut hash);
    mix(&mut y, &mut c, &mut hash);
    hash
}

/// The hash of four numbers.
#[must_use]
pub fn hash32_4(mut a: u32, mut b: u32, mut c: u32, mut d: u32) -> u32 {
    let mut hash = SEED ^ a ^ b ^ c ^ d;
    let (mut x, mut y) = PAD;
    mix(&mut a, &mut b, &mut hash);
    mix(&mut c, &mut d, &mut hash);
    mix(&mut a, &mut x, &mut hash);
    mix(&mut y, &mut b, &mut hash);
    mix(&mut c, &mut x, &mut hash);
    mix(&mut y, &mut d, &mut hash);
    hash
}

/// How many hashes [`hash32_3_lanes`] computes at once.
pub(crate) const LANES: usize = 8;

/// [`hash32_3`]`(a, bs[i], c)` for all `i`: the lanes are independent, so the compiler uses vector
/// instructions.
#[inline(always)]
pub(crate) fn hash32_3_lanes(a: u32, bs: &[u32; LANES], c: u32) -> [u32; LANES] {
    let mut out = [0; LANES];
    for (out, b) in out.iter_mut().zip(bs) {
        *out = hash32_3(a, *b, c);
    }
    out
}

/// The hash of a byte string (Ceph's `rjenkins` object hash).
#[must_use]
pub fn name_hash(bytes: &[u8]) -> u32 {
    const GOLDEN_RATIO: u32 = 0x9e37_79b9;
    let (mut a, mut b, mut c) = (GOLDEN_RATIO, GOLDEN_RATIO, 0_u32);
    let mut blocks = bytes.chunks_exact(12);
    let word = |block: &[u8], at: usize| {
        u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
    };
    for block in &mut blocks {
        a = a.wrapping_add(word(block, 0));
        b = b.wrapping_add(word(block, 4));
        c = c.wrapping_add(word(block, 8));
        mix(&mut a, &mut b, &mut c);
    }
    // The tail is at most 11 bytes. Its last three go above the lowest byte of `c`, which holds the
    // length.
    let mut tail = [0_u8; 12];
    for (i, byte) in blocks.remainder().iter().enumerate() {
        tail[if i < 8 { i } else { i + 1 }] = *byte;
    }
    a = a.wrapping_add(word(&tail, 0));
    b = b.wrapping_add(word(&tail, 4));
    // Lengths wrap at 32 bits, as in Ceph.
    c = c
        .wrapping_add(bytes.len() as u32)
        .wrapping_add(word(&tail, 8));
    mix(&mut a, &mut b, &mut c);
    c
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_agree_with_the_scalar_hash() {
        for round in 0..1000_u32 {
            let (x, r) = (round.wrapping_mul(0x9e37_79b1), round % 50);
            let items: [u32; LANES] = std::array::from_fn(|i| (i as u32).wrapping_sub(round));
            let expected = items.map(|item| hash32_3(x, item, r));
            assert_eq!(hash32_3_lanes(x, &items, r), expected);
        }
    }
}
