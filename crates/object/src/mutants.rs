//! Plausible bugs, as in the other roles: switched on one at a time to prove that the simulator
//! notices (`./x mutants`).

nacre_types::planted_bugs! {
    /// A write under a lock asks whether it is held, not by whom.
    LockOwnerUnchecked,
    /// A write notes the newer snapshots that it knows, and makes no clone for them.
    CloneForgotten,
    /// A clone goes with the newest of its snapshots, though older ones live.
    NeededCloneTrimmed,
    /// An operation whose second part fails keeps what its first did.
    FailedPartKeepsEarlier,
}
