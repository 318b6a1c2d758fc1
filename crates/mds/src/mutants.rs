//! Plausible bugs of a server, switched on one at a time at run time to prove that the simulator
//! detects them (`./x mutants`).

nacre_types::planted_bugs! {
    /// Answers claim to be safe when they are given.
    SafeTooEarly,
    /// A change is answered before other clients have dropped what it changes.
    ForgettingNotAwaited,
    /// A request for a file's size is answered without asking its writer.
    WriterNotAsked,
    /// A new holder answers before clients have resent what was not safe.
    ClientsNotAwaited,
    /// The last holder's answers are forgotten: resent requests are executed again.
    AnswersForgotten,
    /// Inode numbers that the last holder assigned are assigned again.
    NumbersReused,
    /// The journal's head does not contain files open for writing.
    WritersUnnamed,
    /// The journal's head does not contain pending transactions across ranks.
    TransactionsUnnamed,
    /// Writes of evicted clients are not looked for.
    NothingProbed,
    /// A directory is shown while another client may still create names there itself.
    DelegationsKept,
    /// What was appended to a journal after its standby's last look is not read.
    FollowedNotReadAgain,
}
