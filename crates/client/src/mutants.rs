//! Plausible bugs of a client, switched on one at a time at run time to prove that the tests notice
//! (`./x mutants`; `tests/mutants.rs`).

nacre_types::planted_bugs! {
    /// A broken connection is not noticed: what was sent over it waits for the timer.
    ResetForgotten,
    /// A full map is taken, whatever its epoch.
    OlderMapTaken,
    /// An OSD that refuses a connection ends the client, as a monitor does.
    RefusedByAnyone,
    /// A frame of a newer epoch does not make the client ask for the map.
    NewerEpochIgnored,
    /// A map of another cluster's history is passed over in silence.
    OtherHistoryIgnored,
    /// A new interval with the same primary is taken for the old one.
    IntervalUnseen,
    /// Operations are sent again newest first.
    ResentOutOfOrder,
    /// An operation waits for a pool that was removed.
    RemovedPoolAwaited,
    /// An operation is sent again to the OSD that it was first sent to.
    FirstTargetKept,
    /// The client says that everything it has submitted is answered.
    MarkBeyondUnanswered,
    /// The client never says what is answered.
    MarkForgotten,
    /// All attempts have the number of the first.
    AttemptsAlike,
    /// An operation that is sent again is another one to the OSD.
    ResentUnderNewNumber,
    /// Requests do not say under which fence locks were granted.
    FenceUnsaid,
    /// A grant under an older fence replaces the newest known.
    FenceLowered,
    /// A request is dated when it is sent again, not when it was first submitted.
    DateOfResending,
    /// The reading of an OSD's clock is used however long ago it was heard.
    OldReadingUsed,
    /// Clocks are taken to run alike.
    DriftIgnored,
    /// An answer for another client, or for another instance of this one, is taken.
    AnswerOfAnother,
    /// The failure of an earlier attempt ends the operation.
    OldFailureTaken,
    /// A failure from before an earlier operation was sent again ends the operation.
    OvertakenAnswerTaken,
    /// What a read found before an earlier operation was sent again, and executed, ends it.
    OvertakenReadTaken,
    /// An OSD that does not serve the object (any more) ends the operation.
    WrongTargetFinal,
    /// Of what went to a group after what it refused only that is sent again which was refused, too.
    RefusedSentAlone,
    /// An OSD that asks for a date ends the operation.
    UndatedFinal,
    /// Applied in memory counts as durable.
    AppliedIsDone,
    /// The same early answer is told twice.
    AppliedTwice,
    /// An early answer is told after the operation has ended.
    AppliedAfterDone,
    /// Bytes in flight are not given back.
    BytesKept,
    /// Nothing is sent again by the timer.
    NeverSentAgain,
    /// The host is not asked to come back while something is in flight.
    NoDeadline,
    /// The number of operations in flight is not bounded.
    OpsUnbounded,
    /// An operation larger than the bound is refused even when it is alone.
    LargestRefused,
    /// Lengths that do not fit the data are sent.
    PayloadUnchecked,
    /// An operation that no OSD could read is sent.
    UnsendableTaken,
    /// A watch is pinged once in its timeout.
    PingedTooLate,
    /// A watch whose primary changed is pinged when it is due, not at once.
    MovedWatchUnpinged,
    /// A fenced client keeps its watches.
    FencedGoesOn,
    /// A lost watch is told to be confirmed as of its last ping, which was not answered.
    LostSinceLastPing,
    /// A watch goes without a word.
    LostSilently,
    /// The answer to an older ping confirms the newest.
    OldPongConfirms,
    /// A watch is lost before its registration was answered.
    LostBeforeRegistered,
    /// Notifies that the service does not acknowledge pile up.
    NotifiesUnbounded,
    /// A notify that comes again is told again.
    NotifyToldTwice,
    /// A notify that comes after its acknowledgement is told again.
    AcknowledgedForgotten,
    /// Locks are taken in an order of their own.
    LockedBackwards,
    /// A deletion under a lock unlocks the object that is gone.
    DeletedIsUnlocked,
    /// Writes under locks do not ask whether the lock is still held.
    WrittenUnguarded,
    /// A lock that may have been granted is not given back.
    PerhapsLockedKept,
    /// A lock that somebody took over is given back.
    AnothersUnlocked,
    /// A write that nobody remembers counts as not done.
    SupersededIsNothing,
    /// A write that spans objects and fails does not say what was written.
    WrittenForgotten,
    /// The number of requests about metadata in flight is not bounded.
    MetaUnbounded,
    /// The client says that all its requests about metadata are answered.
    MetaMarkBeyondUnanswered,
    /// A request that is sent again does not say so.
    MetaAgainUnsaid,
    /// A watch begins again where it first began.
    MetaWatchedFromStart,
    /// A watch goes on at the last revision that was seen.
    MetaWatchedFromLast,
    /// A new session does not hear what waits for an answer.
    MetaSessionForgets,
    /// An answer for another instance of this client is taken.
    MetaAnswerOfAnother,
    /// A read does not say which revision the client has seen.
    MetaOwnWritesForgotten,
    /// "No majority" ends a request.
    MetaUnavailableFinal,
    /// Events are taken though some before them are missing.
    MetaGapTaken,
    /// A request is sent again before the time that the monitor named.
    MetaNotBeforeIgnored,
    /// Events that were told are told again.
    MetaToldTwice,
    /// A request about metadata that no monitor could read is sent.
    MetaUnsendableTaken,
}
