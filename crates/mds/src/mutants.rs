//! Plausible bugs of a server, switched on one at a time at run time to prove that the simulator
//! notices (`./x mutants`).

nacre_types::planted_bugs! {
    /// Answers say that they are safe when they are given.
    SafeTooEarly,
    /// A change is answered before other clients have forgotten what it changes.
    ForgettingNotAwaited,
    /// Who asks how large a file is is answered without its writer.
    WriterNotAsked,
    /// A new holder answers before clients have sent again what was not safe.
    ClientsNotAwaited,
    /// Answers of the last holder are forgotten: what comes again happens again.
    AnswersForgotten,
    /// Inode numbers that the last holder told are told again.
    NumbersReused,
    /// The journal's head does not name who has files open for writing.
    WritersUnnamed,
    /// Nor changes of several ranks that are under way.
    TransactionsUnnamed,
    /// What an evicted client had written is not looked for.
    NothingProbed,
    /// A directory is shown while another client may make names there itself.
    DelegationsKept,
    /// What came to a journal after the last look of the standby that followed it is not read.
    FollowedNotReadAgain,
}
