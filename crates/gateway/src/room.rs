//! The answer to `statfs`: the size of a file system, and how much is free according to the
//! cluster. Below a quota, the quota is reported: of several, the one with the least left, but
//! never more than the cluster has.

use nacre_types::Ino;
use nacre_wire::fs::{FsQuota, QuotaKind};

/// Block size of `statfs`.
pub const BLOCK: u32 = 4096;
/// Assumed free space if the cluster does not report it: programs that check before they write
/// continue.
const UNKNOWN_BYTES: u64 = 1 << 40;

/// Blocks and files, total and free.
#[derive(Debug, PartialEq, Eq)]
pub struct Room {
    pub blocks: u64,
    pub free: u64,
    pub files: u64,
    pub files_free: u64,
}

impl Room {
    /// From the used bytes and files, the quotas that apply, and the cluster's free space.
    pub fn of((bytes, files): (u64, u64), quotas: &[FsQuota], free: Option<u64>) -> Self {
        let there = free.unwrap_or(UNKNOWN_BYTES);
        let block = u64::from(BLOCK);
        let least = |kind| {
            quotas
                .iter()
                .filter(|quota| quota.kind == kind)
                .min_by_key(|quota| quota.left())
        };
        let (blocks, free) = match least(QuotaKind::Bytes {}) {
            // A file of one byte fits as long as a byte is left.
            Some(quota) => (
                quota.max.div_ceil(block),
                quota.left().min(there).div_ceil(block),
            ),
            None => (bytes.div_ceil(block) + there / block, there / block),
        };
        // As many files as a rank has inode numbers.
        let numbers = Ino::SERIAL_END.max(files);
        let (files, files_free) = match least(QuotaKind::Files {}) {
            Some(quota) => (quota.max, quota.left()),
            None => (numbers, numbers - files),
        };
        Self {
            blocks,
            free,
            files,
            files_free,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quota_of_which_the_least_is_left_is_the_size() {
        let quota = |kind, max, used| FsQuota {
            kind,
            dir: Ino(9),
            max,
            used,
        };
        let bytes = QuotaKind::Bytes {};
        let quotas = [
            quota(bytes, 1 << 20, 5),
            quota(bytes, 2 << 20, (2 << 20) - 4096),
        ];
        let all = Room::of((10 << 20, 7), &[], None);
        assert_eq!((all.blocks, all.free), (2560 + (1 << 28), 1 << 28));
        let room = Room::of((10 << 20, 7), &quotas, None);
        assert_eq!((room.blocks, room.free, room.files), (512, 1, all.files));
        let room = Room::of((10 << 20, 7), &[quota(QuotaKind::Files {}, 10, 12)], None);
        assert_eq!(
            (room.blocks, room.files, room.files_free),
            (all.blocks, 10, 0),
            "more than it may be: nothing is left"
        );
    }

    #[test]
    fn no_more_is_free_than_the_cluster_has_room_for() {
        let quota = FsQuota {
            kind: QuotaKind::Bytes {},
            dir: Ino(9),
            max: 8 << 20,
            used: 1 << 20,
        };
        let room = |quotas: &[FsQuota], free| {
            let room = Room::of((10 << 20, 7), quotas, Some(free));
            (room.blocks, room.free)
        };
        assert_eq!(room(&[], 4 << 20), ((14 << 20) / 4096, (4 << 20) / 4096));
        assert_eq!(room(&[], 0), ((10 << 20) / 4096, 0), "full");
        assert_eq!(room(&[quota], 1 << 40), (2048, (7 << 20) / 4096));
        assert_eq!(room(&[quota], 4 << 20), (2048, (4 << 20) / 4096));
    }
}
