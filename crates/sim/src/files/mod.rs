//! File systems: servers and clients as they are, on objects and metadata as simple as they can be.
//!
//! ```text
//!  programs ─▶ Fs ──messages──▶ Server      each with a clock of its own; any may die, stand still, be cut off
//!              └──operations──▶ memory ◀──┘ objects: done once, later; nothing of a fenced instance
//!              └──requests────▶ registry ◀┘ keys, leases, watches
//! ```
//! The substrate has its own simulation; here it does what it promises, as late as it may. What is
//! judged is in `judge`: what callers were told of names, by a model of POSIX in the order of the
//! journal, which real time must agree with; data by what its only writer knows (`programs`), or as
//! registers (`data`), or by what its writers let others see (`lazy`); that no more is below a
//! directory than its quota allows (`bounds`); that what was synchronized survives its client
//! (`relics`); that nothing of a client is executed once others go on without it (`world`); that a
//! repair meanwhile changes only what was damaged (`repair`); that what a full cluster did not take
//! is an error of the next `fsync` (`programs`); and that every call ends.

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

/// So many run in the tests.
#[cfg(test)]
const SEEDS: u64 = 40;

#[cfg(test)]
mod tests {
    /// Seeds of file systems whose servers and clients die, stand still and are cut off.
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
