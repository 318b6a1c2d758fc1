//! The measurements, by name.

use super::figures::{Line, Measure};
use crate::calls;

/// A workload of the harness: a row of the table with a rate, a latency and a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name in the table.
    pub name: &'static str,
    /// Operations in flight.
    pub depth: u32,
    /// Megabytes per second are more meaningful than operations.
    pub large: bool,
    /// Its row of the floor (`crates/floor`).
    pub floor: Option<&'static str>,
}

const fn row(name: &'static str, depth: u32, floor: &'static str) -> Row {
    Row {
        name,
        depth,
        large: false,
        floor: Some(floor),
    }
}
/// Cold reads have no floor.
const fn cold(name: &'static str, depth: u32) -> Row {
    Row {
        name,
        depth,
        large: false,
        floor: None,
    }
}
const fn large(name: &'static str, depth: u32, floor: &'static str) -> Row {
    Row {
        name,
        depth,
        large: true,
        floor: Some(floor),
    }
}

pub const WRITE_1: Row = row("4 KiB write, new objects, depth 1", 1, "new-1");
pub const WRITE_16: Row = row("4 KiB write, new objects, depth 16", 16, "new");
pub const OVERWRITE_1: Row = row("4 KiB overwrite, depth 1", 1, "overwrite-1");
pub const OVERWRITE_16: Row = row("4 KiB overwrite, depth 16", 16, "overwrite");
pub const READ_1: Row = row("4 KiB warm read, depth 1", 1, "read-1");
pub const READ_16: Row = row("4 KiB warm read, depth 16", 16, "read");
pub const COLD_1: Row = cold("4 KiB cold read, depth 1", 1);
pub const COLD_16: Row = cold("4 KiB cold read, depth 16", 16);
pub const LARGE_WRITE: Row = large("4 MiB write, depth 16", 16, "large-write");
pub const LARGE_READ: Row = large("4 MiB warm read, depth 16", 16, "large-read");
pub const OMAP: Row = row("omap set, 1 key of 64 B, depth 16", 16, "omap");
pub const CALL: Row = row("Lua class call (numops.add), depth 16", 16, "call");

impl Row {
    /// The line with its rate.
    pub const fn rate(self) -> Line {
        (
            self.name,
            if self.large {
                Measure::Bandwidth
            } else {
                Measure::Rate
            },
        )
    }
    /// The line with its latency.
    pub const fn p50(self) -> Line {
        (self.name, Measure::P50)
    }
    /// The line with its cost.
    pub const fn cpu(self) -> Line {
        (self.name, Measure::Cpu)
    }
}

pub const BRING_UP: Line = (
    "from nothing to a pool with all groups clean",
    Measure::Seconds,
);
pub const IDLE: Line = ("memory of all daemons, idle", Measure::MiB);
pub const LOADED: Line = ("memory of all daemons, after the load", Measure::MiB);
pub const RESTART: Line = (
    "all daemons started again: all groups clean",
    Measure::Seconds,
);
pub const KILLED: Line = (
    "an OSD killed under 16 writers: longest without an answer",
    Measure::Millis,
);
pub const RECOVERED: Line = (
    "the killed OSD started again: all groups clean",
    Measure::Seconds,
);
pub const STOPPED: Line = (
    "an OSD stopped under 16 writers: longest without an answer",
    Measure::Millis,
);

/// Costs of calls on a mounted file system: the line of each, and of an ext4, which is stored under
/// Nacre's name.
pub const CALLS: &[(&str, Line, &str)] = &[
    (calls::CREATE, CREATE, "ext4 alone: create"),
    (calls::WARM_STAT, WARM_STAT, "ext4 alone: warm stat"),
    (calls::COLD_STAT, COLD_STAT, "ext4 alone: cold stat"),
    (calls::FSYNC, FSYNC, "ext4 alone: 4 KiB write + fsync"),
    (calls::UNLINK, UNLINK, "ext4 alone: unlink"),
    (calls::LIST, LIST, "ext4 alone: ls -l of 10,000 entries"),
    (calls::UNTAR, UNTAR, "ext4 alone: untar of 3,000 files"),
    (
        calls::UNTAR_SYNC,
        UNTAR_SYNC,
        "ext4 alone: untar of 3,000 files + sync",
    ),
    (
        calls::WRITES,
        FILE_WRITES,
        "ext4 alone: 1 MiB writes in order, and fsync",
    ),
    (calls::READS, FILE_READS, "ext4 alone: 1 MiB reads in order"),
    (
        calls::READS_AGAIN,
        FILE_READS_AGAIN,
        "ext4 alone: 1 MiB reads in order, once more",
    ),
];
pub const CREATE: Line = ("files: create", Measure::Cpu);
pub const WARM_STAT: Line = ("files: warm stat", Measure::Cpu);
pub const COLD_STAT: Line = ("files: cold stat", Measure::Cpu);
pub const FSYNC: Line = ("files: 4 KiB write + fsync", Measure::Cpu);
pub const UNLINK: Line = ("files: unlink", Measure::Cpu);
pub const LIST: Line = ("files: ls -l of 10,000 entries", Measure::Seconds);
pub const UNTAR: Line = ("files: untar of 3,000 files", Measure::Seconds);
pub const UNTAR_SYNC: Line = ("files: untar of 3,000 files + sync", Measure::Seconds);
pub const FILE_WRITES: Line = (
    "files: 1 MiB writes in order, and fsync",
    Measure::Bandwidth,
);
pub const FILE_READS: Line = ("files: 1 MiB reads in order, cold", Measure::Bandwidth);
pub const FILE_READS_AGAIN: Line = (
    "files: 1 MiB reads in order, by another mount",
    Measure::Bandwidth,
);

/// The disk alone; its samples are stored under Nacre's name.
pub const FLUSH: Line = ("the disk alone: 4 KiB write + fdatasync", Measure::P50);
pub const DISK: Line = ("the disk alone: writes of 4 MiB", Measure::Bandwidth);

/// The extent of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Extent {
    /// Number of turns of each system.
    pub rounds: u32,
    /// Duration of each measurement.
    pub seconds: f64,
    /// Additional time for which CPU time is counted after a write load.
    pub settle: f64,
    /// Duration of each of the disk's three measurements.
    pub disk_seconds: f64,
    /// Duration of the floor's measurement for a workload of Nacre's.
    pub floor_seconds: f64,
    /// Number of 4 KiB objects that are overwritten and read warm.
    pub small: u64,
    /// Number of 4 KiB objects that are read cold, at depth 1 and at 16.
    pub cold: [u64; 2],
    /// Number of 4 MiB objects that are read warm.
    pub large: u64,
    /// Number of objects that are called, or whose omap is set.
    pub few: u64,
    /// Number of 4 KiB objects that are overwritten while an OSD dies or hangs.
    pub faulty: u64,
    /// Free space that the largest turn needs, including space that is reclaimed late.
    pub space_gib: u64,
}

pub const FULL: Extent = Extent {
    rounds: 3,
    seconds: 3.0,
    settle: 1.0,
    disk_seconds: 0.7,
    floor_seconds: 1.5,
    small: 5_000,
    cold: [2_000, 4_000],
    large: 64,
    few: 500,
    faulty: 128,
    space_gib: 10,
};
/// Checks that everything works, in some four minutes: its figures are meaningless.
pub const QUICK: Extent = Extent {
    rounds: 1,
    seconds: 1.0,
    settle: 0.3,
    disk_seconds: 0.3,
    floor_seconds: 0.3,
    small: 500,
    cold: [200, 400],
    large: 16,
    few: 100,
    faulty: 64,
    space_gib: 4,
};
