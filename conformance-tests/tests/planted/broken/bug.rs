//! The bugs, and the clause that each breaks.

use conformance_tests::Clause;

macro_rules! bugs {
    ($($clause:ident $name:ident: $doc:literal,)+) => {
        /// The bug of a table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug {
            /// No bug.
            None,
            /// The table is correct, but its backend does not list what it cannot stage.
            ListsNothing,
            $(#[doc = $doc] $name,)+
        }

        impl Bug {
            /// Every bug and the clause it breaks.
            pub const ALL: &[(Self, Clause)] = &[$((Self::$name, Clause::$clause),)+];
        }
    };
}

bugs! {
    T1 InitializesAnew: "`initialize` resets a table that exists",
    T1 LosesAnAcknowledgedCommit: "some acknowledged commits never happen",
    T2 DropsAChange: "the last of several changes is forgotten",
    T2 LosesACommitInACrash: "a crash loses the last acknowledged commit",
    T2 RepeatsACommitAfterACrash: "after a crash the last commit is applied again",
    T2 LosesACommitInTheThirdCrash: "the third crash loses the last acknowledged commit",
    T2 HalfAConflict: "a commit that does not fit the rows leaves a part behind",
    T3 IgnoresTheToken: "a stale token is no conflict",
    T3 UpsertsInserts: "an insert of a row that exists replaces it",
    T4 ConflictsWithoutReason: "throttling is called a conflict",
    T4 ConflictsAreErrors: "a conflict is called a permanent error",
    T5 ForgetsItsOwnSuccess: "a commit that happened, sent again, is a conflict",
    T5 ForgetsTheFirstSending: "a commit sent again to an unreachable store is reported as certainly not applied",
    T5 UnknownIsAConflict: "an unknown outcome is called a conflict",
    T6 TearsReads: "rows of one version come with the token of another",
    T6 ReadsOldVersions: "a read shows what the client read before",
    T6 AlwaysUnchanged: "a known token is always current",
    T7 HeartbeatsMoveTheVersion: "a heartbeat makes a version",
    T8 HeartbeatsMakeRows: "a heartbeat of a missing silo makes a row",
    T8 MovesHeartbeatsBack: "a commit resets the heartbeats of the rows it writes",
    T8 KeepsHeartbeatsOfRemovedRows: "the store keeps the heartbeats of removed rows, which nothing shows",
    T9 MixesSimilarNames: "characters that a store dislikes are left out of cluster names",
    T10 DropsUnknownFields: "fields that this build does not know are dropped",
    T10 CutsTimesToSeconds: "times are kept in seconds",
    T11 DoesNotPage: "only the first page of rows is read",
    T11 DoesNotLookAtLimits: "limits are not enforced",
    T12 SkipsUndecodableRows: "undecodable rows are omitted",
    T12 EmptyWhenAbsent: "an absent table reads as an empty one",
    T12 ShowsTheCellOfADeletedTable: "a new table shows the cluster's cell of the one that was deleted",
    T12 LeavesHeartbeatsBehind: "`delete` leaves heartbeats behind, which nothing shows",
    T12 RepairsByInitialize: "`initialize` adopts rows without a version row",
    T13 EmptyWhenAway: "an unreachable store reads as an empty table",
    T13 HangsWhenAway: "operations hang while the store is unreachable",
    T14 PoisonedByADrop: "a dropped commit leaves its client locked",
    T15 ShowsTheSecret: "`Debug` shows how the client connects",
    T15 LogsTheSecret: "a task of the client logs how it connects",
    T15 LogsTheClusterKey: "`initialize` logs the version row that it makes",
    T15 KeepsNoClusterKey: "`initialize` makes a version row without the cluster key",
    T16 TrustsAnyTable: "the table id is not compared",
    T16 IgnoresTheKnownVersion: "a read is not compared with the known version",
    T16 CommitsOnTheNumber: "a commit on a version that the client remembers compares its number alone",
    T16 RemembersByTheNumber: "a table with the version number that the client remembers is taken for what it remembers",
}
