//! Plausible bugs of a store, switched on one at a time at run time to prove that the tests notice
//! (`./x mutants`; `tests/mutants.rs`).

nacre_types::planted_bugs! {
    /// The loss of an object's data, because a part of an unreadable block was overwritten, is not
    /// reported.
    LossUntold,
    /// A transaction is reported as committed once its group is written, before the flush.
    CommitBeforeFlush,
    /// A group is flushed while its blocks beside the log are still being written.
    BesideNotAwaited,
    /// A group does not flush the blocks that were written before it.
    EarlyUnflushed,
    /// The last group of the log is replayed even if its blocks beside the log are missing.
    BesideUnverified,
    /// Blocks that the last group itself freed or rewrote are verified as well.
    GivenBackVerified,
    /// The end of the log is not marked when the store is idle.
    EndUnmarked,
    /// A checkpoint does not wait for the transaction that replaced its blocks.
    NeedsIgnored,
    /// A block is written back while a read expects the old content there.
    WriteBackUnderReader,
    /// Only the first run of blocks of a read in flight is protected from being overwritten.
    LooksAtFirstPart,
    /// Units that are being discarded are recorded as taken in a checkpoint: they leak at a crash.
    DiscardTakenInCheckpoint,
    /// Units that wait to be freed are recorded as taken in a checkpoint: they leak at a crash.
    WaitingTakenInCheckpoint,
    /// Of the runs near a group, the one that reaches into it from the previous group is omitted.
    NearForgetsFirst,
    /// Weights of omaps are kept across checkpoints.
    WeightsKept,
    /// Memory does not limit the transactions applied ahead of checkpoints.
    StallIgnored,
    /// A write-back settles the newer content of the block, too.
    SettledNewer,
    /// A freed unit is reused while a read uses it.
    FreedUnderReader,
    /// Only the newest read in flight prevents the reuse of freed units.
    NewestReaderCounts,
    /// The last read that began before a unit was freed does not protect it.
    LastReaderUncounted,
    /// Of a run of units only the first one's group is written in the next checkpoint.
    DirtyGroupsOfFirst,
    /// A block that was freed before it was written back is still written back.
    CancelForgotten,
    /// Transactions are accepted without a limit.
    QueueUnbounded,
    /// A list that was cut at its limit reports that it is complete.
    ListNeverMore,
    /// The entry at which a slice is full is omitted.
    SliceSkipsOne,
    /// A transaction's changes of an omap before it cloned the omap are not applied to the copy.
    CopyNotOverlaid,
    /// The cost of a clone in the index is not counted.
    CloneWeighsNothing,
    /// A group of the log is replayed regardless of its checksum.
    TornGroupTrusted,
    /// The search for damage ends where the ring wraps.
    LookBeyondEndsAtWrap,
    /// The search for damage covers only the next piece of the log.
    LookBeyondShort,
    /// Of a run of units only the first one's group is written after replay.
    ReplayGroupsOfFirst,
    /// Opening does not advance the epoch.
    EpochStays,
    /// The cache is asked for a head before the memtables that have a newer one.
    OldHeadFirst,
    /// A head that leaves its memtable is not found until it is in the cache.
    LeavingNotAsked,
    /// A block with two users is freed with the first.
    ReferencedFreed,
    /// A block that a clone shares is written in place.
    SharedWrittenInPlace,
}
