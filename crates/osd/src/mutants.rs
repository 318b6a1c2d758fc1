//! Plausible bugs, switched on one at a time at run time to prove that the tests and the simulator
//! notice (`./x mutants`). They are in `mutants/`, a file for each that has decisions which they
//! spoil (`#[nacre_types::planted]`), and compiled only with the feature `mutants`.

nacre_types::planted_bugs! {
    /// Peering trusts the longest log instead of the last activated interval's.
    LongestLogWins,
    /// A member that has logged as many updates takes an update of an earlier interval for one that
    /// it has, and acknowledges it; the deposed primary accepts the acknowledgement regardless of
    /// the frame's epoch. (Not checking the interval of an acknowledgement is harmless alone:
    /// versions contain theirs, so that an old one is older than everything that waits.)
    AckIntervalUnchecked,
    /// A replica acknowledges when it has applied the update, not when the log is flushed.
    AckBeforeFlush,
    /// Reads are answered without a lease.
    ReadLeaseIgnored,
    /// A restarted replica forgets that it may have granted a lease.
    LeaseForgottenAfterRestart,
    /// A split gives the child no memory of operations.
    DedupLostOnSplit,
    /// Backfill does not remove objects that only the target has.
    BackfillResurrects,
    /// A backfill target counts as a complete member.
    BackfillTargetComplete,
    /// Writes are served before the monitors committed the activation.
    ActivationNotAwaited,
    /// A read of an object does not wait for earlier writes to commit.
    ReadUncommitted,
    /// An operation below the client's mark that is not remembered is executed.
    SupersededExecuted,
    /// Peering with divergent entries keeps the objects that they wrote.
    DivergentKept,
    /// A notifier gets the list of those who missed the notify before their watches are durably
    /// removed.
    NotifyAnsweredEarly,
    /// A call runs the loaded version, although the map names a newer one.
    OldProgramRuns,
    /// A method that calls another class runs its loaded version, although the map names a newer one.
    CalledProgramOld,
    /// An unknown operation is executed although later ones of its client on the object have been.
    OvertakenExecuted,
    /// A duplicate of an operation that changed nothing is executed: its answer is not remembered.
    AnswerForgotten,
    /// An operation of a client that the PG has forgotten is executed, whenever it was first sent.
    ForgottenClientExecutedAgain,
    /// A client that may have been forgotten is asked again and again to date its operation.
    UndatedForEver,
    /// An update is reported as applied everywhere when only the primary has applied it.
    AppliedHereTold,
    /// An operation of a fenced client is executed.
    FenceIgnored,
    /// A member of the last activated interval whose store was lost counts as complete.
    EmptyStoreCounts,
}
