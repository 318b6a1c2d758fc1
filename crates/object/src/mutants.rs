//! Plausible bugs, as in the other roles: switched on one at a time to prove that the simulator
//! detects them (`./x mutants`).

nacre_types::planted_bugs! {
    /// A write under a lock checks whether the lock is held, but not by whom.
    LockOwnerUnchecked,
    /// A write records the newer snapshots that it knows but makes no clone for them.
    CloneForgotten,
    /// A clone is removed with the newest of its snapshots, although older ones still exist.
    NeededCloneTrimmed,
    /// An operation whose second part fails keeps the effects of its first part.
    FailedPartKeepsEarlier,
}
