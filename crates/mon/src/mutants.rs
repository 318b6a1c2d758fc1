//! Plausible bugs of monitors, switched on one at a time at run time to prove that the tests notice (`./x mutants`; `tests/mutants.rs`).
//! Compiled only with the feature `mutants`; otherwise [`mutant`] is a constant `false`.

/// A plausible bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mutant {
    /// A lease gets the number of the last one that is there, plus one: a number that was revoked comes again.
    LeaseNumberReused = 1,
    /// A snapshot of the state has no fences.
    FenceLostInSnapshot,
    /// A snapshot of the state has no leases.
    LeaseLostInSnapshot,
    /// A snapshot of the state has no memory of commands carried out.
    CommandsLostInSnapshot,
    /// A leader answers reads without proof that it still leads.
    StaleLeaderRead,
    /// A watch is not told of the first of the revisions that were applied together.
    WatchGap,
}

impl Mutant {
    /// All.
    pub const ALL: [Self; 6] = [
        Self::LeaseNumberReused,
        Self::FenceLostInSnapshot,
        Self::LeaseLostInSnapshot,
        Self::CommandsLostInSnapshot,
        Self::StaleLeaderRead,
        Self::WatchGap,
    ];
}

#[cfg(feature = "mutants")]
static ACTIVE: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// Switches one on, or all off.
#[cfg(feature = "mutants")]
pub fn set_mutant(mutant: Option<Mutant>) {
    ACTIVE.store(mutant.map_or(0, |m| m as u8), std::sync::atomic::Ordering::Relaxed);
}

/// Whether this one is on.
#[cfg(feature = "mutants")]
#[must_use]
pub fn mutant(mutant: Mutant) -> bool {
    ACTIVE.load(std::sync::atomic::Ordering::Relaxed) == mutant as u8
}

/// Never.
#[cfg(not(feature = "mutants"))]
#[must_use]
pub const fn mutant(_: Mutant) -> bool {
    false
}
