//! Directory quotas and their usage, as extended attributes (ADR 0006, "Quotas").
//!
//! ```text
//!  nacre.quota.max_bytes   most bytes below the directory      set: a decimal number; 0, or removing it: no bound
//!  nacre.quota.max_files   most files and directories below it
//!  nacre.dir.rbytes, nacre.dir.rfiles, nacre.dir.rsubdirs      what is below it, only to be read
//! ```
//! They are not stored with the other attributes: a quota is in the inode's [`Rare`], the sums are
//! in heads.

use super::{Head, Rare};
use crate::{wire_enum, wire_fields};
use nacre_types::Ino;

/// Prefix of Nacre's own attribute names.
pub const PREFIX: &[u8] = b"nacre.";

/// A directory attribute that is computed rather than stored as an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirAttr {
    /// A limit.
    Max(QuotaKind),
    /// Bytes of files below the directory.
    Bytes,
    /// Files, links and other non-directories below.
    Files,
    /// Directories below it.
    Directories,
}

/// What a quota limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaKind {
    /// Bytes of files (their sizes).
    Bytes {},
    /// Number of files, directories and other entries.
    Files {},
}
wire_enum!(QuotaKind { 1 => Bytes {}, 2 => Files {} });

impl QuotaKind {
    /// The name of its attribute.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bytes {} => "nacre.quota.max_bytes",
            Self::Files {} => "nacre.quota.max_files",
        }
    }
    /// A directory's limit, if it has one.
    #[must_use]
    pub const fn of(self, rare: &Rare) -> Option<u64> {
        match self {
            Self::Bytes {} => rare.bytes_max,
            Self::Files {} => rare.files_max,
        }
    }
    /// The same, mutable.
    pub const fn of_mut(self, rare: &mut Rare) -> &mut Option<u64> {
        match self {
            Self::Bytes {} => &mut rare.bytes_max,
            Self::Files {} => &mut rare.files_max,
        }
    }
    /// Usage according to a head.
    #[must_use]
    pub const fn used(self, head: &Head) -> u64 {
        match self {
            Self::Bytes {} => head.bytes_below,
            Self::Files {} => head.files_below + head.directories_below,
        }
    }
}

impl DirAttr {
    /// The attribute with this name.
    #[must_use]
    pub fn parse(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"nacre.quota.max_bytes" => Self::Max(QuotaKind::Bytes {}),
            b"nacre.quota.max_files" => Self::Max(QuotaKind::Files {}),
            b"nacre.dir.rbytes" => Self::Bytes,
            b"nacre.dir.rfiles" => Self::Files,
            b"nacre.dir.rsubdirs" => Self::Directories,
            _ => return None,
        })
    }
}

/// Parses a limit: a decimal number; 0 means no limit.
///
/// # Errors
/// The value is no such number.
pub fn parse_bound(value: &[u8]) -> Result<Option<u64>, NotABound> {
    // Also refuses the sign that Rust would accept.
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(NotABound);
    }
    let bound: u64 = std::str::from_utf8(value)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or(NotABound)?;
    Ok(Some(bound).filter(|bound| *bound > 0))
}

/// The value of a limit is not a decimal number below 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotABound;

/// A quota that applies to something, with its usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsQuota {
    /// What it limits.
    pub kind: QuotaKind,
    /// The directory that has it.
    pub dir: Ino,
    /// The limit.
    pub max: u64,
    /// How much is used.
    pub used: u64,
}
wire_fields!(FsQuota {
    kind,
    dir,
    max,
    used
});

impl FsQuota {
    /// How much is left.
    #[must_use]
    pub const fn left(&self) -> u64 {
        self.max.saturating_sub(self.used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_a_decimal_number_and_nothing_else() {
        assert_eq!(
            (parse_bound(b"1"), parse_bound(b"0")),
            (Ok(Some(1)), Ok(None))
        );
        assert_eq!(parse_bound(b"18446744073709551615"), Ok(Some(u64::MAX)));
        for bad in [
            "",
            "+1",
            "-1",
            " 1",
            "1 ",
            "1k",
            "0x10",
            "1.0",
            "18446744073709551616",
            "1\n",
        ] {
            assert_eq!(parse_bound(bad.as_bytes()), Err(NotABound), "{bad:?}");
        }
    }

    #[test]
    fn each_quota_is_found_by_its_name() {
        for kind in [QuotaKind::Bytes {}, QuotaKind::Files {}] {
            assert_eq!(
                DirAttr::parse(kind.name().as_bytes()),
                Some(DirAttr::Max(kind))
            );
        }
        assert_eq!(DirAttr::parse(b"nacre.quota.max"), None);
    }
}
