//! Usable space of a store: its own free space, limited by that of the host's file system.
//!
//! ```text
//!   store          ├── log ──┤├── used ──┤├── allocated before, free now ──┤├── never written, not allocated ──┤
//!   usable                                  all of it                     +  a share of the file system's free space
//! ```
//! The file system's free space is counted once: each OSD's store on it may claim an equal share.
//! Measured at every housekeeping, and after large allocations.

use crate::config::{Config, OSD_BYTES};
use crate::device::Blocks;
use nacre_store::Usage;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Free space of a file system that no store claims: for directories, daemons' logs and the file
/// system's metadata.
const LEFT_FREE: u64 = 8 << 20;

/// Space figures of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostSpace {
    /// Free bytes of the store's file system.
    pub free: u64,
    /// Stores of OSDs on it that may grow, including this one.
    pub stores: u64,
    /// Bytes allocated to the store's file.
    pub allocated: u64,
    /// Bytes of the file that are neither objects nor index: superblocks and log.
    pub fixed: u64,
    /// Whether the reserve (`reserve.rs`) is complete.
    pub reserved: bool,
}

/// A store's space as limited by the host: total and free bytes. `None`: the host has more than the
/// store could use.
pub fn limited(usage: &Usage, host: &HostSpace) -> Option<(u64, u64)> {
    let share = host.free.saturating_sub(LEFT_FREE) / host.stores.max(1);
    let allocated = host
        .allocated
        .saturating_sub(host.fixed)
        .saturating_sub(usage.used);
    // Once the reserve is given up, all space that is left is for deletions.
    let may = if host.reserved {
        allocated.saturating_add(share)
    } else {
        0
    };
    (may < usage.free).then(|| (usage.total - (usage.free - may), may))
}

/// Default size of an OSD's store: all stores fit on the disk even if full, at most [`OSD_BYTES`].
#[must_use]
pub fn default_osd_bytes(dir: &Path, osds: u32) -> u64 {
    let there = dir
        .ancestors()
        .find(|dir| dir.exists())
        .filter(|dir| !dir.as_os_str().is_empty());
    let Some(free) = free_bytes(there.unwrap_or(Path::new("."))) else {
        return OSD_BYTES;
    };
    let share = free / 10 * 8 / u64::from(osds.max(1));
    (share / OSD_BYTES_STEP * OSD_BYTES_STEP).clamp(OSD_BYTES_MIN, OSD_BYTES)
}
const OSD_BYTES_STEP: u64 = 64 << 20;
const OSD_BYTES_MIN: u64 = 128 << 20;

/// Location of a store, and the other stores on its file system.
#[derive(Debug)]
pub struct Place {
    blocks: Arc<Blocks>,
    path: PathBuf,
    /// `cluster.toml`, and its modification time: an OSD may have been added.
    config: PathBuf,
    seen: Option<(i64, i64)>,
    stores: u64,
}

/// Free bytes of the file system that holds this, for users other than root.
pub fn free_bytes(path: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

impl Place {
    /// For a store in a file; a block device has its space for itself.
    pub fn of(config: &Config, path: &Path, blocks: &Arc<Blocks>) -> Option<Self> {
        path.metadata().ok().filter(std::fs::Metadata::is_file)?;
        let config = config.dir.join(crate::config::FILE_NAME);
        Some(Self {
            blocks: blocks.clone(),
            path: path.to_owned(),
            config,
            seen: None,
            stores: 1,
        })
    }

    /// Counts OSDs' stores on the same file system, from the current configuration.
    fn count(&mut self) {
        let Ok(meta) = self.config.metadata() else {
            return;
        };
        let written = (meta.mtime(), meta.mtime_nsec());
        if self.seen == Some(written) {
            return;
        }
        let dir = self.config.parent().unwrap_or(Path::new("."));
        let (Ok(config), Ok(own)) = (Config::load(dir), self.path.metadata()) else {
            return;
        };
        let there = |path: &Path| {
            path.metadata()
                .is_ok_and(|meta| meta.is_file() && meta.dev() == own.dev())
        };
        let stores: BTreeSet<&PathBuf> = config
            .osds
            .values()
            .map(|entry| &entry.path)
            .filter(|path| there(path))
            .collect();
        self.stores = (stores.len() as u64).max(1);
        self.seen = Some(written);
    }

    /// Queries the host; `None` if it does not answer.
    pub fn look(&mut self, usage: &Usage) -> Option<HostSpace> {
        let blocks = self.blocks.clone();
        blocks.ask_space(|| self.ask(usage))
    }

    fn ask(&mut self, usage: &Usage) -> Option<HostSpace> {
        self.count();
        let free = free_bytes(&self.path)?;
        let allocated = self.path.metadata().ok()?.blocks().saturating_mul(512);
        let reserved = self
            .blocks
            .keep_reserve(free.saturating_sub(LEFT_FREE) / self.stores);
        let fixed = self.blocks.len().saturating_sub(usage.total);
        Some(HostSpace {
            free,
            stores: self.stores,
            allocated,
            fixed,
            reserved,
        })
    }

    /// A human-readable warning when the host has less space than the store's size.
    pub fn to_text(&self, host: &HostSpace) -> String {
        let at = self.path.display();
        if host.reserved {
            format!(
                "the file system of {at} has {} MiB free for {} stores",
                host.free >> 20,
                host.stores
            )
        } else {
            format!("the file system of {at} is full")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    const MIB: u64 = 1 << 20;

    fn usage(total: u64, used: u64) -> Usage {
        Usage {
            total: total * MIB,
            used: used * MIB,
            free: (total - used) * MIB,
            ..Usage::default()
        }
    }
    fn host(free: u64, stores: u64, allocated: u64) -> HostSpace {
        HostSpace {
            free: free * MIB,
            stores,
            allocated: allocated * MIB,
            fixed: 100 * MIB,
            reserved: true,
        }
    }

    /// F15: three sparse stores of 10 GiB on a disk with 299 MiB left reported 29 GiB free.
    #[test]
    fn sparse_stores_share_what_the_host_has() {
        let (total, free) =
            limited(&usage(10_000, 50), &host(308, 3, 150)).expect("the host has less");
        assert_eq!(
            (total, free),
            (150 * MIB, 100 * MIB),
            "a third of 300 MiB, and what is used"
        );
        assert_eq!(
            limited(&usage(10_000, 50), &host(40_000, 3, 150)),
            None,
            "a large disk: the store is the limit"
        );
    }

    /// Previously allocated space counts: otherwise the cluster stayed full after everything was
    /// deleted.
    #[test]
    fn what_was_freed_inside_the_store_is_there_without_the_host() {
        let (total, free) =
            limited(&usage(10_000, 10), &host(8, 3, 1110)).expect("the host has less");
        assert_eq!((total, free), (1010 * MIB, 1000 * MIB));
    }

    /// Each store of a cluster counted the whole file system's free space as its own: a full disk
    /// surprised all of them at once. An OSD that is added while they run counts, too.
    #[test]
    fn the_stores_of_one_file_system_are_counted() {
        use crate::config::OsdEntry;
        use crate::directory::{InitOptions, add_osd, init};
        let dir = std::env::temp_dir().join(format!("nacre-space-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let options = InitOptions {
            osds: 3,
            base_port: None,
            osd_bytes: 32 << 20,
            mon_bytes: 128 << 20,
            ..Default::default()
        };
        let mut config = init(&dir, &options).expect("an empty folder becomes a cluster");
        let (&first, entry) = config.osds.first_key_value().expect("three");
        let (entry, path) = (entry.clone(), entry.path.clone());
        let blocks = Arc::new(Blocks::open(&path, None).expect("opens"));
        let mut place = Place::of(&config, &path, &blocks).expect("a file");
        assert_eq!(
            place.look(&usage(32, 0)).map(|host| host.stores),
            Some(3),
            "monitors do not grow"
        );
        let id = nacre_types::OsdId(first.0 + 7);
        let entry = OsdEntry {
            path: dir.join(id.to_string()).join("store"),
            ..entry
        };
        add_osd(&mut config, id, entry, 9).expect("added");
        assert_eq!(place.look(&usage(32, 0)).map(|host| host.stores), Some(4));
        // An editor may have written half of the file when it is read, and the rest within the same
        // tick of the file system's clock.
        let path = dir.join(crate::config::FILE_NAME);
        let (whole, at) = (
            std::fs::read_to_string(&path).expect("there"),
            std::time::SystemTime::UNIX_EPOCH,
        );
        let write = |text: &str| {
            std::fs::write(&path, text).expect("written");
            File::options()
                .write(true)
                .open(&path)
                .and_then(|file| file.set_modified(at))
                .expect("ours");
        };
        place.stores = 1;
        write(&whole[..whole.len() / 2]);
        assert_eq!(
            place.look(&usage(32, 0)).map(|host| host.stores),
            Some(1),
            "as before"
        );
        write(&whole);
        assert_eq!(
            place.look(&usage(32, 0)).map(|host| host.stores),
            Some(4),
            "what could not be read is read again"
        );
        std::fs::remove_dir_all(dir).expect("ours");
    }

    /// F15: stores of a new cluster were 10 GiB each on any disk, and filling them hit the end of
    /// the disk first. No test failed when that was reintroduced.
    #[test]
    fn new_stores_that_nobody_gave_a_size_fit_on_the_disk_together() {
        // The directory of a new cluster, which may not exist yet.
        let dir = std::env::temp_dir()
            .join("nacre-space-not-made")
            .join("deeper");
        let free = || free_bytes(&std::env::temp_dir()).expect("it says");
        let most = free().max(1);
        for osds in [
            1_u64,
            3,
            most / OSD_BYTES + 1,
            most / (1 << 30) + 1,
            most / (256 << 20) + 1,
        ] {
            // Other processes use the disk, too.
            let before = free();
            let size = default_osd_bytes(&dir, u32::try_from(osds).expect("some thousands"));
            let (least, most) = (before.min(free()), before.max(free()));
            assert!(
                (OSD_BYTES_MIN..=OSD_BYTES).contains(&size),
                "{osds} OSDs: {size}"
            );
            assert!(
                size == OSD_BYTES_MIN || size * osds < most,
                "{osds} OSDs of {size} in {most}"
            );
            let share = least / osds;
            assert!(
                size == OSD_BYTES || size >= share / 2 || share < 2 * OSD_BYTES_STEP,
                "{osds} OSDs: {size}"
            );
        }
        assert_eq!(
            default_osd_bytes(&dir, u32::MAX),
            OSD_BYTES_MIN,
            "small, but a store"
        );
    }

    #[test]
    fn without_the_reserve_nothing_is_free() {
        let host = HostSpace {
            reserved: false,
            ..host(308, 3, 1110)
        };
        assert_eq!(limited(&usage(10_000, 50), &host), Some((50 * MIB, 0)));
    }
}
