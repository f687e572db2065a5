//! What is wrong with a client of the small server.

/// What is wrong with a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    None,
    /// A commit is sent again under another name when its connection breaks: one's own success is a conflict.
    RetriesUnderAnotherName,
    /// Whatever breaks is said to have certainly not happened.
    CertainlyNot,
    /// A connection is used again although an answer is still to come, and answers are not told apart.
    MixesAnswers,
    /// A connection that broke is never replaced.
    NeverReconnects,
    /// No answer is waited for without an end.
    WaitsForever,
    /// A read that fails shows an empty table.
    EmptyWhenCut,
    /// The rows are sent before the version.
    CommitsInTwoRequests,
    /// A read finds no version row, then asks for the rows, and takes a table created meanwhile for a damaged one.
    ReadsRowsLater,
    /// A delete lists the rows, and then removes the version row and those: of a table made anew meanwhile the others are left.
    DeletesWhatItListed,
    /// A permit is lost with every dropped question.
    LosesPermits,
    /// More round trips than are promised.
    TalksTooMuch,
    /// Does not go through the proxy at all.
    GoesPastTheProxy,
    /// Asks every few milliseconds whether something happened, and says so two seconds later.
    HintsLate,
    /// The hints end when their connection does.
    HintsEnd,
    /// After a cut nobody listens any more.
    HintsStop,
}
