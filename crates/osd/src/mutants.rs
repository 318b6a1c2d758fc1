//! Plausible bugs, switched on one at a time at run time to prove that the tests and the simulator
//! notice (`./x mutants`). Compiled only with the feature `mutants`; otherwise [`mutant`] is a
//! constant `false`.

nacre_types::planted_bugs! {
    /// Peering trusts the longest log instead of the last activated interval's.
    LongestLogWins,
    /// Whoever has logged as many updates takes one of an earlier interval for one that it has, and
    /// acknowledges it; the deposed primary believes that whatever the frame's epoch. (The interval
    /// of an acknowledgement alone does no harm unchecked: versions carry theirs, so that an old
    /// one is older than everything that waits.)
    AckIntervalUnchecked,
    /// A replica acknowledges when it has applied, not when the log is flushed.
    AckBeforeFlush,
    /// Reads are answered without a lease.
    ReadLeaseIgnored,
    /// A restarted replica forgets that it may have granted a lease.
    LeaseForgottenAfterRestart,
    /// A split gives the child no memory of operations.
    DedupLostOnSplit,
    /// Backfill does not remove what the target has too much.
    BackfillResurrects,
    /// A backfill target counts as a complete member.
    BackfillTargetComplete,
    /// Writes are served before the monitors committed the activation.
    ActivationNotAwaited,
    /// A read of an object does not wait for the writes before it to commit.
    ReadUncommitted,
    /// An operation below the client's mark that nobody remembers is executed.
    SupersededExecuted,
    /// Peering with divergent entries keeps the objects they wrote.
    DivergentKept,
    /// A notifier hears who missed it before these watches are durably gone.
    NotifyAnsweredEarly,
    /// A call runs what is loaded, though the map names a newer version.
    OldProgramRuns,
    /// A method that calls another class runs what is loaded of that, though the map names a newer version.
    CalledProgramOld,
    /// An unknown operation is executed although its client's later ones on the object have been.
    OvertakenExecuted,
    /// A copy of an operation that changed nothing is executed: what it was answered is not remembered.
    AnswerForgotten,
    /// An operation of a client that the group has forgotten is executed, whenever it was first sent.
    ForgottenClientExecutedAgain,
    /// A client that may have been forgotten is asked again and again when it first asked, whatever it says.
    UndatedForEver,
    /// An update is said to be applied everywhere when the primary has applied it.
    AppliedHereTold,
    /// An operation of a fenced client is executed.
    FenceIgnored,
    /// A member of the last activated interval whose store was lost counts as one that has everything.
    EmptyStoreCounts,
}
