//! Plausible bugs of a store, switched on one at a time at run time to prove that the tests notice
//! (`./x mutants`; `tests/mutants.rs`).

nacre_types::planted_bugs! {
    /// The objects whose blocks stay unreadable because a part of them was overwritten are not told.
    LossUntold,
    /// A transaction is reported as committed once its group is written, before the flush.
    CommitBeforeFlush,
    /// A group is flushed while its blocks beside the log are still on their way.
    BesideNotAwaited,
    /// The last group of the log is replayed whether its blocks beside the log are there or not.
    BesideUnverified,
    /// Blocks that the last group itself gave back or wrote again must be there as well.
    GivenBackVerified,
    /// At rest the end of the log is not marked.
    EndUnmarked,
    /// A checkpoint does not wait for what replaced its blocks.
    NeedsIgnored,
    /// A block is written to its place while a read expects the old content there.
    WriteBackUnderReader,
    /// Only the first run of blocks of a read under way is kept from being overwritten.
    LooksAtFirstPart,
    /// Units that are being discarded are taken in a checkpoint: they leak at a crash.
    DiscardTakenInCheckpoint,
    /// Units that wait to be freed are taken in a checkpoint: they leak at a crash.
    WaitingTakenInCheckpoint,
    /// Of the runs near a group the one that reaches into it from the group before is forgotten.
    NearForgetsFirst,
    /// Weights of omaps are believed across checkpoints.
    WeightsKept,
    /// Memory does not bound what is applied ahead of checkpoints.
    StallIgnored,
    /// A write-back settles the newer content of the block, too.
    SettledNewer,
    /// A freed unit is used again while a read looks at it.
    FreedUnderReader,
    /// Only the newest read under way keeps freed units from being used again.
    NewestReaderCounts,
    /// The read that began last before a unit was freed does not keep it.
    LastReaderUncounted,
    /// Of a run of units only the first one's group is written in the next checkpoint.
    DirtyGroupsOfFirst,
    /// A block that was freed before it was written back is written back all the same.
    CancelForgotten,
    /// Transactions are taken without a bound.
    QueueUnbounded,
    /// A list that was cut at its limit says that it is the end.
    ListNeverMore,
    /// The entry at which a slice is full is left out.
    SliceSkipsOne,
    /// What a transaction did to an omap before it cloned it is not done to the copy.
    CopyNotOverlaid,
    /// What a clone costs the index is not counted.
    CloneWeighsNothing,
    /// A group of the log is replayed whatever its checksum says.
    TornGroupTrusted,
    /// Damage is not looked for behind the place where the ring wraps.
    LookBeyondEndsAtWrap,
    /// Damage is looked for in the next piece of the log only.
    LookBeyondShort,
    /// Of a run of units only the first one's group is written after replay.
    ReplayGroupsOfFirst,
    /// Opening does not advance the epoch.
    EpochStays,
    /// A block that had two users is freed with the first.
    ReferencedFreed,
    /// A block that a clone shares is written in place.
    SharedWrittenInPlace,
}
