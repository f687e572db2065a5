//! What a backend can stage for the suite, and why something cannot apply to a store.

use std::fmt;

/// Something the suite would like the store to do that no [`MembershipTable`](membership_core::MembershipTable) can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Capability {
    /// Put any text in the place of a row or of the version row, and take the version row away.
    RawAccess,
    /// Remove a cluster past the contract.
    Wipe,
    /// Save a cluster and bring it back as it was.
    SaveAndRestore,
    /// Restart the store's server, or kill the one that leads, while clients run.
    Restart,
    /// Take the store away and bring it back.
    Unavailable,
    /// Connect with a secret that must not show.
    Secret,
    /// Let another process use the same store, to be killed in the middle of a commit.
    Child,
    /// Refuse the heartbeat of a silo that has no row, without a second round trip.
    RefusesOrphanHeartbeats,
    /// A client whose connections all go through a [`Proxy`](crate::proxy::Proxy).
    Proxy,
    /// Say by itself that the version may have moved: [`MembershipTable::hints`](membership_core::MembershipTable::hints).
    Hints,
}

/// Why something cannot apply to a store. There are no others: what could be staged and is not is a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The store lives in the memory of this process: nothing to stop, nobody else to share it with.
    InMemory,
    /// The store is a file that every client opens by itself: there is no server to stop or restart.
    NoServer,
    /// Connecting takes no secret.
    NoSecret,
    /// The store could tell only with a second round trip, which the contract does not ask for.
    SecondRoundTrip,
    /// The store belongs to somebody else (a managed service), who does not let a test stop or restart it.
    Managed,
    /// The store's own rules make it impossible, as its provider's README explains.
    StoreForbids,
    /// The server cannot be reached through a proxy: it is somebody else's, or the way to it is not TCP.
    NoProxy,
    /// The store has no notifications, or its provider does not use them.
    NoHints,
    /// The suite was given the store's address and nothing else: nothing to stop its server with, nor to reach past the contract.
    OnlyAddress,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InMemory => "the store lives in the memory of this process",
            Self::NoServer => "the store is a file: there is no server",
            Self::NoSecret => "connecting takes no secret",
            Self::SecondRoundTrip => "the store could tell only with a second round trip",
            Self::Managed => "the store is a managed service that a test cannot stop",
            Self::StoreForbids => "the store's own rules make it impossible",
            Self::NoProxy => "the server cannot be reached through a proxy",
            Self::NoHints => "the store has no notifications",
            Self::OnlyAddress => "there is only an address: nothing to stop the server or to reach past the contract with",
        })
    }
}
