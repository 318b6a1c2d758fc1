//! CRC32C (Castagnoli, as used by iSCSI), the one checksum of all formats.
//!
//! Under libFuzzer (`cfg(fuzzing)`, set only by cargo-fuzz) the checksums of everything that we
//! parse ourselves are the same number: a fuzzer that must guess checksums does not test the code
//! behind them. Superblock and index blocks keep theirs ([`crc32c_always`]): redb trusts its pages
//! (it panics on bad ones, as fuzzing showed at once), and these checksums protect it.

use super::BLOCK;
use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};

/// The checksum of one piece.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    if cfg!(fuzzing) { 0 } else { crc32_iscsi(bytes) }
}

/// The checksum of one piece, also under a fuzzer.
pub(crate) fn crc32c_always(bytes: &[u8]) -> u32 {
    crc32_iscsi(bytes)
}

/// The checksum of several pieces in order, as if they were one.
pub(crate) struct Crc(Digest);

impl Crc {
    pub(crate) fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
    pub(crate) fn finish(&self) -> u32 {
        if cfg!(fuzzing) {
            return 0;
        }
        u32::try_from(self.0.finalize()).expect("a 32-bit checksum has 32 bits")
    }
}

/// The content of one block, in the segments it arrived in. Always [`BLOCK`] bytes in all.
#[derive(Clone, Debug)]
pub(crate) enum BlockData {
    One(Bytes),
    Many(Vec<Bytes>),
}

impl BlockData {
    pub(crate) fn from_segments(mut segments: Vec<Bytes>) -> Self {
        debug_assert_eq!(segments.iter().map(Bytes::len).sum::<usize>(), BLOCK);
        match segments.len() {
            1 => Self::One(segments.pop().expect("counted")),
            _ => Self::Many(segments),
        }
    }
    pub(crate) fn segments(&self) -> &[Bytes] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
    pub(crate) fn crc(&self) -> u32 {
        match self {
            Self::One(one) => crc32c(one),
            Self::Many(many) => {
                let mut crc = Crc::new();
                many.iter().for_each(|segment| crc.update(segment));
                crc.finish()
            }
        }
    }
    /// Appends `length` bytes from `start`.
    pub(crate) fn slice_into(&self, start: usize, length: usize, out: &mut Vec<Bytes>) {
        let (mut skip, mut left) = (start, length);
        for segment in self.segments() {
            if left == 0 {
                break;
            }
            if skip >= segment.len() {
                skip -= segment.len();
                continue;
            }
            let take = left.min(segment.len() - skip);
            out.push(segment.slice(skip..skip + take));
            left -= take;
            skip = 0;
        }
        debug_assert_eq!(left, 0, "a block was asked for bytes it does not have");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_castagnoli_and_does_not_see_segments() {
        assert_eq!(
            crc32c(b"123456789"),
            0xe306_9283,
            "the check value every CRC32C has"
        );
        let whole = Bytes::from((0..BLOCK).map(|i| (i * 7) as u8).collect::<Vec<_>>());
        for cut in [1, 100, 4095] {
            let parts = BlockData::from_segments(vec![whole.slice(..cut), whole.slice(cut..)]);
            assert_eq!(parts.crc(), BlockData::One(whole.clone()).crc());
            let mut out = Vec::new();
            parts.slice_into(50, 4000, &mut out);
            assert_eq!(out.concat(), whole[50..4050]);
        }
    }
}
