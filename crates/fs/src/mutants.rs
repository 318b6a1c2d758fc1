//! Plausible bugs of a client, switched on one at a time at run time to prove that the simulator
//! detects them (`./x mutants`).

nacre_types::planted_bugs! {
    /// A request is forgotten when it is answered, not when it is safe.
    UnsafeForgotten,
    /// The capability to delay writes is given back before dirty data is written.
    GivenBackUnwritten,
    /// Cached data is kept when the capability for that is given back.
    DataKept,
    /// Names are kept that the server invalidates.
    NamesKept,
    /// A client leaves before its files are closed.
    LeftAtOnce,
    /// A caller that synchronizes all files is told what other files lost, and their own callers
    /// are not.
    LossesTaken,
    /// A write to several objects does not get exclusive access.
    SpanningUnlocked,
    /// The capability to read is given back while a read has read one object and not the other.
    GivenBackReading,
    /// Others continue before answered data is in objects.
    EarlyUnwritten,
    /// A lazy `Synchronize` keeps cached data.
    SynchronizedKept,
    /// Objects are copied before dirty data of their file is written.
    CopiedUnwritten,
    /// Where the source of a copy has a hole, the target keeps what it had.
    HoleNotCopied,
}
