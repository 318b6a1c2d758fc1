//! Names of parts of a file system: inodes, ranks of its servers, fragments of directories.

use std::fmt;

/// A part of the namespace over which one server at a time has authority, numbered from 0. When
/// that server dies, another one takes over its rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u16);

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.0)
    }
}

/// An inode's number, never reused within a file system (CEPH-25). Printed in hexadecimal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

impl Ino {
    /// The directory that contains the root's entry; it has no name itself.
    pub const TOP: Self = Self(0);
    /// The root directory.
    pub const ROOT: Self = Self(1);
    /// A rank's first serial; lower numbers have fixed meanings.
    pub const SERIAL_MIN: u64 = 1 << 20;
    /// End of serials, excluded: some 281 million million per rank.
    pub const SERIAL_END: u64 = 1 << 48;

    /// The number that a rank assigns as its `serial`th. Each rank has a range of its own, so ranks
    /// never assign the same number.
    ///
    /// # Panics
    /// If the serial is not between [`Self::SERIAL_MIN`] and [`Self::SERIAL_END`].
    #[must_use]
    pub fn given(rank: Rank, serial: u64) -> Self {
        assert!(
            (Self::SERIAL_MIN..Self::SERIAL_END).contains(&serial),
            "{rank} has no serial {serial}"
        );
        Self(u64::from(rank.0) << 48 | serial)
    }
    /// The hidden directory for a rank's files that have had more than one name (ADR 0006).
    #[must_use]
    pub const fn links(rank: Rank) -> Self {
        Self(0x1_0000 + rank.0 as u64)
    }
    /// The hidden directory for a rank's files that have no name (or none any more) and are open,
    /// or whose data is not removed yet.
    #[must_use]
    pub const fn strays(rank: Rank) -> Self {
        Self(0x2_0000 + rank.0 as u64)
    }
    /// The rank that assigned it, which holds its attributes, whatever directories its names are
    /// in; for a hidden directory, the rank that owns it.
    #[must_use]
    pub const fn rank(self) -> Rank {
        match self.0 {
            0x1_0000..=0x2_FFFF => Rank((self.0 & 0xFFFF) as u16),
            number => Rank((number >> 48) as u16),
        }
    }
    /// Whether it is a hidden directory, which no path reaches.
    #[must_use]
    pub const fn is_hidden(self) -> bool {
        self.0 == Self::TOP.0 || (self.0 > Self::ROOT.0 && self.0 < Self::SERIAL_MIN)
    }
}

impl fmt::Display for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// A fragment of a directory: the entries whose names' hashes start with certain bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frag {
    bits: u8,
    value: u32,
}

impl Frag {
    /// A directory that was never split.
    pub const WHOLE: Self = Self { bits: 0, value: 0 };
    /// Most bits: 16.7 million fragments.
    pub const BITS_MAX: u8 = 24;
    /// Number of bits in a name's hash.
    pub const HASH_BITS: u8 = 63;

    /// The fragment of hashes whose first `bits` bits are `value`; `None` if that is invalid.
    #[must_use]
    pub fn new(bits: u8, value: u32) -> Option<Self> {
        (bits <= Self::BITS_MAX && u64::from(value) < 1 << bits).then_some(Self { bits, value })
    }
    /// The number of bits, and their value.
    #[must_use]
    pub const fn parts(self) -> (u8, u32) {
        (self.bits, self.value)
    }
    /// The lowest hash in it.
    #[must_use]
    pub fn first(self) -> u64 {
        // Shifting by all bits would overflow.
        if self.bits == 0 {
            0
        } else {
            u64::from(self.value) << (Self::HASH_BITS - self.bits)
        }
    }
    /// The highest hash in it.
    #[must_use]
    pub fn last(self) -> u64 {
        self.first() | ((1 << (Self::HASH_BITS - self.bits)) - 1)
    }
    /// Whether a name with this hash belongs to the fragment.
    #[must_use]
    pub fn has(self, hash: u64) -> bool {
        hash >> (Self::HASH_BITS - self.bits) == u64::from(self.value)
    }
}

impl fmt::Display for Frag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}{:06x}", self.bits, self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_ranks_do_not_meet() {
        let (low, high) = (Ino::SERIAL_MIN, Ino::SERIAL_END - 1);
        assert!(Ino::given(Rank(0), high) < Ino::given(Rank(1), low));
        let fixed = [
            Ino::TOP,
            Ino::links(Rank(0)),
            Ino::links(Rank(u16::MAX)),
            Ino::strays(Rank(u16::MAX)),
        ];
        assert!(
            fixed
                .iter()
                .all(|ino| ino.is_hidden() && *ino < Ino::given(Rank(0), low))
        );
        assert!(!Ino::ROOT.is_hidden() && !Ino::given(Rank(0), low).is_hidden());
        assert!(Ino::links(Rank(u16::MAX)) < Ino::strays(Rank(0)));
    }

    #[test]
    #[should_panic(expected = "has no serial")]
    fn a_fixed_number_is_not_given() {
        let _ = Ino::given(Rank(0), 1);
    }

    #[test]
    fn fragments_of_one_depth_share_out_all_hashes() {
        assert!(Frag::WHOLE.has(0) && Frag::WHOLE.has((1 << 63) - 1));
        for bits in [1, 3, Frag::BITS_MAX] {
            for hash in [
                0,
                1,
                1 << 62,
                (1 << 62) - 1,
                (1 << 63) - 1,
                0x1234_5678_9abc_def0,
            ] {
                let value = (hash >> (63 - bits)) as u32;
                let frag = Frag::new(bits, value).expect("a fragment");
                assert!(
                    frag.has(hash) && (frag.first()..=frag.last()).contains(&hash),
                    "{frag} {hash:x}"
                );
                assert!(frag.has(frag.first()) && frag.has(frag.last()), "{frag}");
                let other = Frag::new(bits, value ^ 1).expect("its neighbour");
                assert!(!other.has(hash), "{other} {hash:x}");
            }
        }
        assert_eq!((Frag::new(1, 2), Frag::new(25, 0)), (None, None));
        assert_eq!(
            Frag::new(3, 5).map(|frag| frag.to_string()).as_deref(),
            Some("03000005")
        );
    }
}
