//! The bugs, the clause that each breaks, and the least effort that catches it.

use conformance_tests::{Clause, Effort};

/// How much a run repeats, in the order of how much that is. A bug that one of them catches is
/// caught by those after it, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Least {
    /// The smallest numbers with which a set-up (TLS, several servers) repeats the run of its store.
    Setup,
    /// What every change runs over every store.
    Quick,
    /// The long runs before a release.
    Soak,
}

impl Least {
    /// The numbers of repetitions. A soak kills the server as often as `Effort::soak`, within a
    /// shorter history.
    pub fn effort(self) -> Effort {
        let mut effort = Effort::quick();
        match self {
            Self::Setup => {
                (effort.model_operations, effort.commits) = (300, 200);
                (effort.kills, effort.rows) = (10, 500);
            }
            Self::Quick => {}
            Self::Soak => {
                (effort.model_operations, effort.commits) = (1_500, 600);
                effort.server_kills = Effort::soak().server_kills;
            }
        }
        effort
    }

    /// The one that repeats less, if there is one.
    pub fn less(self) -> Option<Self> {
        match self {
            Self::Setup => None,
            Self::Quick => Some(Self::Setup),
            Self::Soak => Some(Self::Quick),
        }
    }
}

macro_rules! bugs {
    ($($least:ident $clause:ident $name:ident: $doc:literal,)+) => {
        /// The bug of a table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug {
            /// No bug.
            None,
            /// One of several writers loses every time.
            StarvesAWriter,
            /// The table is correct, but its backend does not list what it cannot stage.
            ListsNothing,
            $(#[doc = $doc] $name,)+
        }

        impl Bug {
            /// Every bug, the clause it breaks, and the least effort that catches it.
            pub const ALL: &[(Self, Clause, Least)] =
                &[$((Self::$name, Clause::$clause, Least::$least),)+];
        }
    };
}

bugs! {
    Setup T1 InitializesAnew: "`initialize` resets a table that exists",
    Setup T1 LosesAnAcknowledgedCommit: "some acknowledged commits never happen",
    Setup T2 DropsAChange: "the last of several changes is forgotten",
    Setup T2 LosesACommitInACrash: "a crash loses the last acknowledged commit",
    Setup T2 RepeatsACommitAfterACrash: "after a crash the last commit is applied again",
    Soak T2 LosesACommitInTheThirdCrash: "the third crash loses the last acknowledged commit",
    Setup T2 HalfAConflict: "a commit that does not fit the rows leaves a part behind",
    Setup T3 IgnoresTheToken: "a stale token is no conflict",
    Setup T3 UpsertsInserts: "an insert of a row that exists replaces it",
    Setup T4 ConflictsWithoutReason: "throttling is called a conflict",
    Setup T4 ConflictsAreErrors: "a conflict is called a permanent error",
    Setup T4 DeniedIsAConflict: "a missing permission is called a conflict",
    Setup T4 DeniedIsUnknown: "a missing permission is called an unknown outcome",
    Setup T4 LetsReadersBeat: "a client that may only read writes heartbeats",
    Setup T5 ForgetsItsOwnSuccess: "a commit that happened, sent again, is a conflict",
    Setup T5 ForgetsTheFirstSending: "a commit sent again to an unreachable store is reported as certainly not applied",
    Setup T5 UnknownIsAConflict: "an unknown outcome is called a conflict",
    Setup T6 TearsReads: "rows of one version come with the token of another",
    Setup T6 ReadsOldVersions: "a read shows what the client read before",
    Setup T6 AlwaysUnchanged: "a known token is always current",
    Setup T6 PromisesLess: "reads are not said to be linearizable, and the store must guarantee it",
    Setup T2 KeepsLess: "acknowledged commits are said to be lost now and then, and the store must keep them",
    Setup T7 HeartbeatsMoveTheVersion: "a heartbeat makes a version",
    Setup T8 HeartbeatsMakeRows: "a heartbeat of a missing silo makes a row",
    Setup T8 MovesHeartbeatsBack: "a commit resets the heartbeats of the rows it writes",
    Setup T8 KeepsHeartbeatsOfRemovedRows: "the store keeps the heartbeats of removed rows, which nothing shows",
    Setup T8 HidesOrphans: "a read does not name the heartbeats that have no row",
    Setup T8 ShowsOrphans: "a read shows a heartbeat without a row as that of a silo",
    Setup T9 MixesSimilarNames: "characters that a store dislikes are left out of cluster names",
    Setup T10 DropsUnknownFields: "fields that this build does not know are dropped",
    Setup T10 CutsTimesToSeconds: "times are kept in seconds",
    Quick T11 DoesNotPage: "only the first page of rows is read",
    Setup T11 DoesNotLookAtLimits: "limits are not enforced",
    Setup T12 SkipsUndecodableRows: "undecodable rows are omitted",
    Setup T12 EmptyWhenAbsent: "an absent table reads as an empty one",
    Setup T12 ShowsTheCellOfADeletedTable: "a new table shows the cluster's cell of the one that was deleted",
    Setup T12 LeavesHeartbeatsBehind: "`delete` leaves heartbeats behind, which nothing shows",
    Setup T12 RepairsByInitialize: "`initialize` adopts rows without a version row",
    Setup T13 EmptyWhenAway: "an unreachable store reads as an empty table",
    Setup T13 HangsWhenAway: "operations hang while the store is unreachable",
    Setup T14 PoisonedByADrop: "a dropped commit leaves its client locked",
    Setup T15 ShowsTheSecret: "`Debug` shows how the client connects",
    Setup T15 LogsTheSecret: "a task of the client logs how it connects",
    Setup T15 LogsTheClusterKey: "`initialize` logs the version row that it makes",
    Setup T15 KeepsNoClusterKey: "`initialize` makes a version row without the cluster key",
    Setup T16 TrustsAnyTable: "the table id is not compared",
    Setup T16 IgnoresTheKnownVersion: "a read is not compared with the known version",
    Setup T16 CommitsOnTheNumber: "a commit on a version that the client remembers compares its number alone",
    Setup T16 RemembersByTheNumber: "a table with the version number that the client remembers is taken for what it remembers",
}
