//! Plausible bugs of a client, switched on one at a time at run time to prove that the simulator
//! notices (`./x mutants`).

nacre_types::planted_bugs! {
    /// A request is forgotten when it is answered, not when it is safe.
    UnsafeForgotten,
    /// The right to write later is given back before what is dirty is written.
    GivenBackUnwritten,
    /// Data is kept when the right to that is given back.
    DataKept,
    /// Names are kept that the server says to forget.
    NamesKept,
    /// A client leaves before its files are closed.
    LeftAtOnce,
    /// Who synchronizes all files is told what others' files lost, and these are not.
    LossesTaken,
    /// A write to several objects does not have the file alone.
    SpanningUnlocked,
    /// The right to read is given back while a read has found one object and not the other.
    GivenBackReading,
    /// Others go on before what was answered is in objects.
    EarlyUnwritten,
    /// Who synchronizes a file that it keeps lazily keeps what it had.
    SynchronizedKept,
    /// Objects are copied before what is dirty of their file is written.
    CopiedUnwritten,
    /// Where the source of a copy has a hole, the target keeps what it had.
    HoleNotCopied,
}
