//! What a backend can stage for the suite, and the reasons why something does not apply to a store.

use std::fmt;

/// A situation that the suite wants staged, and that no
/// [`MembershipTable`](membership_core::MembershipTable) can stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Capability {
    /// Replace a row or the version row by any text, and remove the version row.
    RawAccess,
    /// Remove a cluster past the contract.
    Wipe,
    /// Make the whole store anew and empty, so that whatever counts revisions there begins again.
    Recreate,
    /// Save a cluster, and restore it.
    SaveAndRestore,
    /// Restart the store's server, or kill the leading one, while clients run.
    Restart,
    /// Make the store unreachable, and reachable again.
    Unavailable,
    /// Freeze the server that leads until another one leads, and thaw it.
    Depose,
    /// A client whose user may read and not write.
    Reader,
    /// Connect with a secret, which must not show anywhere.
    Secret,
    /// Let another process use the same store. The suite kills it in the middle of a commit.
    Child,
    /// Refuse the heartbeat of a silo that has no row, without a second round trip.
    RefusesOrphanHeartbeats,
    /// A client whose connections all go through a [`Proxy`](crate::proxy::Proxy).
    Proxy,
    /// Report by itself that the version may have moved:
    /// [`MembershipTable::hints`](membership_core::MembershipTable::hints).
    Hints,
}

impl Capability {
    /// The reasons for which a store can lack it.
    #[must_use]
    pub const fn reasons(self) -> &'static [Reason] {
        match self {
            Self::RawAccess | Self::Wipe | Self::SaveAndRestore => {
                &[Reason::OnlyAddress, Reason::StoreForbids]
            }
            Self::Restart | Self::Unavailable => &[
                Reason::InMemory,
                Reason::NoServer,
                Reason::Managed,
                Reason::OnlyAddress,
            ],
            Self::Recreate => &[
                Reason::InMemory,
                Reason::NoServer,
                Reason::Managed,
                Reason::OnlyAddress,
                Reason::NotMadeAnew,
            ],
            Self::Depose => &[
                Reason::OneServer,
                Reason::InMemory,
                Reason::NoServer,
                Reason::Managed,
                Reason::OnlyAddress,
            ],
            Self::Reader => &[
                Reason::NoReader,
                Reason::InMemory,
                Reason::NoServer,
                Reason::Managed,
                Reason::OnlyAddress,
            ],
            Self::Secret => &[Reason::NoSecret],
            Self::Child => &[Reason::InMemory],
            Self::RefusesOrphanHeartbeats => &[Reason::SecondRoundTrip],
            Self::Proxy => &[Reason::InMemory, Reason::NoServer, Reason::NoProxy],
            Self::Hints => &[Reason::NoHints, Reason::StoreForbids],
        }
    }
}

/// Why something does not apply to a store. There are no other reasons: a situation that could be
/// staged and is not makes its cases fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The store lives in the memory of this process: it has no server, and no other process shares
    /// it.
    InMemory,
    /// The store is a file that every client opens by itself: there is no server to restart.
    NoServer,
    /// Connecting takes no secret.
    NoSecret,
    /// The tests make no user that may read and not write: the servers let every client write, take
    /// their users from their configuration, or each have users of their own.
    NoReader,
    /// The store needs a second round trip to find out, which the contract does not require.
    SecondRoundTrip,
    /// The store is a managed service, which a test cannot stop or restart.
    Managed,
    /// The store's own rules make it impossible; its provider's README explains why.
    StoreForbids,
    /// The server cannot be reached through a proxy: somebody else runs it, or it does not use TCP.
    NoProxy,
    /// The store has no notifications, or its provider does not use them.
    NoHints,
    /// The suite has only the store's address: it cannot stop the server, nor access the data past
    /// the contract.
    OnlyAddress,
    /// No other server takes over from the one that leads: there is one, or none of them leads.
    OneServer,
    /// The tests do not empty these servers: several form a cluster, or what the tests made in them
    /// beforehand would be gone.
    NotMadeAnew,
    /// The store need not guarantee it: its backend requires less
    /// ([`Backend::required_guarantees`](crate::Backend::required_guarantees)).
    NotGuaranteed,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InMemory => "the store lives in the memory of this process",
            Self::NoServer => "the store is a file: there is no server",
            Self::NoSecret => "connecting takes no secret",
            Self::NoReader => "the tests make no user that may only read",
            Self::SecondRoundTrip => "the store needs a second round trip to find out",
            Self::Managed => "the store is a managed service that a test cannot stop",
            Self::StoreForbids => "the store's own rules make it impossible",
            Self::NoProxy => "the server cannot be reached through a proxy",
            Self::NoHints => "the store has no notifications",
            Self::OnlyAddress => "only the address is known: no way to stop the server or to access data past the contract",
            Self::OneServer => "no other server takes over",
            Self::NotMadeAnew => "the tests do not empty its servers",
            Self::NotGuaranteed => "the store need not guarantee it",
        })
    }
}
