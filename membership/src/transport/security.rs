//! How connections between silos are protected.

/// How a [`TcpTransport`](super::TcpTransport) protects its connections.
///
/// The default needs no set-up. Every connection is TLS 1.3; the key of a process is named by its
/// row in the table, and a process that has no row yet proves that it has read the table. So whoever
/// may read the table may join, and nobody else is heard.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Security(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Kind {
    #[default]
    Table,
    NoneOnLoopback,
    NoneAnywhere,
}

impl Security {
    /// TLS 1.3, with the table as the root of trust: the default.
    #[must_use]
    pub const fn table() -> Self {
        Self(Kind::Table)
    }

    /// Plain TCP, on loopback addresses alone: whoever can connect may claim to be any silo.
    #[must_use]
    pub const fn none() -> Self {
        Self(Kind::NoneOnLoopback)
    }

    /// Plain TCP on any network. Everybody who reaches the port can read what silos say, and can
    /// end the cluster with one packet: only for networks that nobody else can reach, for example
    /// within a tunnel that authenticates its ends.
    #[must_use]
    pub const fn insecure() -> Self {
        Self(Kind::NoneAnywhere)
    }

    pub(super) fn is_plain(&self) -> bool {
        self.0 != Kind::Table
    }

    pub(super) fn allows(&self, address: std::net::IpAddr) -> bool {
        self.0 != Kind::NoneOnLoopback || address.to_canonical().is_loopback()
    }
}
