//! File systems: the real servers and clients on simplified objects and metadata.
//!
//! ```text
//!  programs ─▶ Fs ──messages──▶ Server      each with a clock of its own; any may die, pause, be cut off
//!              └──operations──▶ memory ◀──┘ objects: executed once, later; nothing of a fenced instance
//!              └──requests────▶ registry ◀┘ keys, leases, watches
//! ```
//! The object cluster has its own simulation; here it keeps its guarantees, as late as it may.
//! Checked are: in `judge`, what callers were told about names, with a POSIX model in the order of
//! the journal, which must agree with real time; data, by what its only writer knows (`programs`),
//! as registers (`data`), or by what its writers make visible to others (`lazy`); that no more is
//! below a directory than its quota allows (`bounds`); that synchronized data survives its client
//! (`relics`); that nothing of a client is executed once others continue without it (`world`); that
//! a concurrent repair changes only what was damaged (`repair`); that data refused by a full
//! cluster causes an error of the next `fsync` (`programs`); and that every call ends.

mod bounds;
mod checked;
mod data;
mod judge;
mod kernel;
mod lazy;
mod log;
mod programs;
mod registry;
mod relics;
mod repair;
mod tops;
mod view;
mod world;

pub use world::{Report, run};

/// Number of seeds in the tests.
#[cfg(test)]
const SEEDS: u64 = 40;

#[cfg(test)]
mod tests {
    /// Seeds of file systems whose servers and clients die, pause and are cut off.
    #[test]
    fn files_survive_their_servers() {
        let (mut takeovers, mut own, mut evictions, mut above) = (0, 0, 0, 0);
        let (mut across, mut refused, mut full, mut lazy, mut copied) = (0, 0, 0, 0, 0);
        for seed in 0..crate::files::SEEDS {
            let report = super::run(seed, false);
            takeovers += report.takeovers;
            own += report.own;
            evictions += report.evictions;
            above += report.above;
            across += report.across;
            refused += report.refused;
            copied += report.copied;
            full += report.full;
            lazy += report.lazy;
        }
        let enough = takeovers > 100 && own > 1_000 && evictions > 1 && above > 100;
        assert!(enough, "{takeovers} {own} {evictions} {above}");
        assert!(
            across > 50 && refused > 50 && full > 10,
            "{across} {refused} {full}"
        );
        assert!(lazy > 1_000 && copied > 50, "{lazy} {copied}");
    }
}
