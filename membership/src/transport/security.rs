//! How connections between silos are protected.

use super::tls::{Certificates, Secret};

/// How a [`TcpTransport`](super::TcpTransport) protects its connections.
///
/// The default needs no set-up. Every connection is TLS 1.3; the key of a process is named by its
/// row in the table, and a process that has no row yet proves that it has read the table. So whoever
/// may read the table may join, and nobody else is heard. A [secret](Self::with_secret) and
/// [certificates](Self::with_certificates) narrow that.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Security {
    kind: Kind,
    secret: Option<Secret>,
    certificates: Option<Certificates>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Kind {
    #[default]
    Table,
    NoneOnLoopback,
    NoneAnywhere,
}

impl Security {
    const fn of(kind: Kind) -> Self {
        Self {
            kind,
            secret: None,
            certificates: None,
        }
    }

    /// TLS 1.3, with the table as the root of trust: the default.
    #[must_use]
    pub const fn table() -> Self {
        Self::of(Kind::Table)
    }

    /// TLS 1.3 without a root of trust of its own, for members without a table: add a
    /// [secret](Self::with_secret) or [certificates](Self::with_certificates), or both; who has all
    /// that is demanded is believed. Where there is a table, the same as [`table`](Self::table).
    #[must_use]
    pub const fn tls() -> Self {
        Self::of(Kind::Table)
    }

    /// Plain TCP, on loopback addresses alone: whoever can connect may claim to be any silo.
    #[must_use]
    pub const fn none() -> Self {
        Self::of(Kind::NoneOnLoopback)
    }

    /// Plain TCP on any network. Everybody who reaches the port can read what silos say, and can
    /// end the cluster with one packet: only for networks that nobody else can reach, for example
    /// within a tunnel that authenticates its ends.
    #[must_use]
    pub const fn insecure() -> Self {
        Self::of(Kind::NoneAnywhere)
    }

    /// Demands besides that every silo has this secret: for tables that many may read. Without TLS
    /// a transport refuses it.
    #[must_use]
    pub fn with_secret(mut self, secret: Secret) -> Self {
        self.secret = Some(secret);
        self
    }

    /// Demands besides that every silo has a certificate: where an authority decides which machines
    /// may take part. Without TLS a transport refuses it.
    #[must_use]
    pub fn with_certificates(mut self, certificates: Certificates) -> Self {
        self.certificates = Some(certificates);
        self
    }

    /// Whether something besides a table says who may join, or nothing is to.
    pub(super) fn says_who_may_join(&self) -> bool {
        self.is_plain() || self.secret.is_some() || self.certificates.is_some()
    }

    pub(super) fn is_plain(&self) -> bool {
        self.kind != Kind::Table
    }

    pub(super) const fn secret(&self) -> Option<&Secret> {
        self.secret.as_ref()
    }

    pub(crate) const fn certificates(&self) -> Option<&Certificates> {
        self.certificates.as_ref()
    }

    pub(super) fn allows(&self, address: std::net::IpAddr) -> bool {
        self.kind != Kind::NoneOnLoopback || address.to_canonical().is_loopback()
    }
}
