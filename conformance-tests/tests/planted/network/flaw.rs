//! What is wrong with a client of the small server.

/// The flaw of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    None,
    /// When its connection breaks, a commit is sent again with another id: its own success becomes
    /// a conflict.
    RetriesUnderAnotherName,
    /// Every error says that the operation certainly did not happen.
    CertainlyNot,
    /// A connection is used again before its answer has come, and answers are not matched to
    /// requests.
    MixesAnswers,
    /// A connection that broke is never replaced.
    NeverReconnects,
    /// The client waits for answers without a timeout.
    WaitsForever,
    /// The beginning of an answer counts as the answer, and what is not there of its body as empty.
    TakesPartsOfAnswers,
    /// A read that fails shows an empty table.
    EmptyWhenCut,
    /// The rows are sent before the version.
    CommitsInTwoRequests,
    /// A read finds no version row, then reads the rows, and reports a table that was created
    /// meanwhile as damaged.
    ReadsRowsLater,
    /// An initialize reads that there is no table, and then makes one over any other.
    InitializesOver,
    /// A delete lists the rows, and then removes the version row and those rows. Of a table that
    /// was created anew meanwhile, the other rows are left.
    DeletesWhatItListed,
    /// Every dropped request loses a permit.
    LosesPermits,
    /// The client makes more round trips than it promises.
    MakesMoreRoundTrips,
    /// After each operation the client asks for something that is never answered.
    LeavesARequestOpen,
    /// The client does not use the proxy.
    BypassesTheProxy,
    /// A read that asks for a new connection uses the old one.
    ReadsOverTheOldConnection,
    /// A connection stays open when a new one takes its place.
    LeavesConnectionsOpen,
    /// Hints come more than a second late.
    HintsLate,
    /// The hints end with their connection.
    HintsEnd,
    /// After a cut the client does not subscribe again.
    HintsStop,
}
