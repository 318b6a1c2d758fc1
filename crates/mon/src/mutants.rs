//! Plausible bugs of monitors, switched on one at a time at run time to prove that the tests notice
//! (`./x mutants`; `tests/mutants.rs`). They are in `mutants/`, a file for each that has decisions
//! which they spoil (`#[nacre_types::planted]`), and compiled only with the feature `mutants`.

nacre_types::planted_bugs! {
    /// A lease gets the number of the last one that is there, plus one: a number that was revoked comes again.
    LeaseNumberReused,
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
