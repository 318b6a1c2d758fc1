//! Plausible bugs of a client, switched on one at a time at run time to prove that the tests notice
//! (`./x mutants`; `tests/mutants.rs`).
//!
//! The roles do not contain them. `mutants/` has a wrapper for each role, which spoils what the
//! role is told, remembers and says. With the feature `mutants` the stories run the wrappers,
//! `broken`.

/// The roles with the bug that is switched on.
#[cfg(feature = "mutants")]
pub mod broken {
    pub use crate::meta::planted::MetaClient;
    pub use crate::role::planted::Client;
    pub use crate::spanning::planted::SpanningWrite;
}

nacre_types::planted_bugs! {
    /// A broken connection is not noticed: requests sent over it wait for the timer.
    ResetForgotten,
    /// A full map is accepted, whatever its epoch.
    OlderMapTaken,
    /// An OSD that refuses a connection ends the client, as a monitor does.
    RefusedByAnyone,
    /// A frame of a newer epoch does not make the client ask for the map.
    NewerEpochIgnored,
    /// A map of another cluster's history is ignored silently.
    OtherHistoryIgnored,
    /// A new interval with the same primary is taken for the old one.
    IntervalUnseen,
    /// Operations are resent newest first.
    ResentOutOfOrder,
    /// An operation waits for a pool that was removed.
    RemovedPoolAwaited,
    /// An operation is resent to the OSD that it was first sent to.
    FirstTargetKept,
    /// The client claims that everything it has submitted is answered.
    MarkBeyondUnanswered,
    /// The client never reports which operations are answered.
    MarkForgotten,
    /// All attempts have the number of the first.
    AttemptsAlike,
    /// A resent operation has a new number, so the OSD takes it for another operation.
    ResentUnderNewNumber,
    /// Requests do not carry the fence epoch under which locks were granted.
    FenceUnsaid,
    /// A grant under an older fence epoch replaces the newest known.
    FenceLowered,
    /// A request is dated when it is resent, not when it was first submitted.
    DateOfResending,
    /// The reading of an OSD's clock is used however old it is.
    OldReadingUsed,
    /// Clocks are assumed to run at the same speed.
    DriftIgnored,
    /// An answer for another client, or for another instance of this one, is accepted.
    AnswerOfAnother,
    /// The failure of an earlier attempt ends the operation.
    OldFailureTaken,
    /// A failure from before an earlier operation was resent ends the operation.
    OvertakenAnswerTaken,
    /// A read's result from before an earlier operation was resent and executed ends the read.
    OvertakenReadTaken,
    /// An OSD that does not serve the object (any more) ends the operation.
    WrongTargetFinal,
    /// Only refused operations are resent to a PG, without those sent after the first refused one.
    RefusedSentAlone,
    /// An OSD that asks for a date ends the operation.
    UndatedFinal,
    /// Applied in memory counts as durable.
    AppliedIsDone,
    /// The same early answer is reported twice.
    AppliedTwice,
    /// An early answer is reported after the operation has ended.
    AppliedAfterDone,
    /// Bytes in flight are not released.
    BytesKept,
    /// The timer resends nothing.
    NeverSentAgain,
    /// No deadline is set while something is in flight.
    NoDeadline,
    /// The number of operations in flight is not bounded.
    OpsUnbounded,
    /// An operation larger than the bound is refused even when it is the only one.
    LargestRefused,
    /// Operations whose lengths do not match the data are sent.
    PayloadUnchecked,
    /// An operation that no OSD can decode is sent.
    UnsendableTaken,
    /// A watch is pinged only once per timeout.
    PingedTooLate,
    /// A watch whose primary changed is pinged when it is due, not immediately.
    MovedWatchUnpinged,
    /// A fenced client keeps its watches.
    FencedGoesOn,
    /// A lost watch is reported as confirmed at its last ping, which was not answered.
    LostSinceLastPing,
    /// A watch is lost without an event.
    LostSilently,
    /// The answer to an older ping confirms the newest one.
    OldPongConfirms,
    /// A watch is lost before its registration was answered.
    LostBeforeRegistered,
    /// Notifies that the service does not acknowledge pile up.
    NotifiesUnbounded,
    /// A repeated notify is reported again.
    NotifyToldTwice,
    /// A notify repeated after its acknowledgement is reported again.
    AcknowledgedForgotten,
    /// Locks are not taken in the order of names.
    LockedBackwards,
    /// A deletion under a lock is followed by an unlock of the deleted object.
    DeletedIsUnlocked,
    /// Writes under locks do not check that the lock is still held.
    WrittenUnguarded,
    /// A lock that may have been granted is not released.
    PerhapsLockedKept,
    /// A lock that another client took over is released.
    AnothersUnlocked,
    /// A write whose outcome was forgotten counts as not executed.
    SupersededIsNothing,
    /// A failed write that spans objects does not report what was written.
    WrittenForgotten,
    /// The number of requests about metadata in flight is not bounded.
    MetaUnbounded,
    /// The client claims that all its requests about metadata are answered.
    MetaMarkBeyondUnanswered,
    /// A resent request is not marked as a resend.
    MetaAgainUnsaid,
    /// A watch restarts where it first began.
    MetaWatchedFromStart,
    /// A watch restarts at the last revision received.
    MetaWatchedFromLast,
    /// Unanswered requests are not resent over a new session.
    MetaSessionForgets,
    /// An answer for another instance of this client is accepted.
    MetaAnswerOfAnother,
    /// A read does not carry the revision that the client has seen.
    MetaOwnWritesForgotten,
    /// "No majority" ends a request.
    MetaUnavailableFinal,
    /// Events are accepted although earlier ones are missing.
    MetaGapTaken,
    /// A request is resent before the time that the monitor named.
    MetaNotBeforeIgnored,
    /// Events are reported twice.
    MetaToldTwice,
    /// A request about metadata that no monitor can decode is sent.
    MetaUnsendableTaken,
}
