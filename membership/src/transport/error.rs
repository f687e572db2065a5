//! Why a transport did not start.

use std::io;
use std::net::SocketAddr;

use super::CertificatesError;

crate::debug_as_display!(TransportError);

/// Why a transport did not start.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}{}", advice(.source))]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// Plain TCP was asked for on an address that is not a loopback address.
    #[error(
        "{address} is not a loopback address, and without TLS everybody who reaches it can end the cluster: leave security at `table`, or say `insecure` if nobody else reaches that network"
    )]
    Insecure {
        /// The address asked for.
        address: SocketAddr,
    },
    /// A secret or certificates were given without TLS.
    #[error("a secret and certificates need TLS: leave security at `table`, or remove them")]
    SecretWithoutTls,
    /// A member of a cluster without a table, and neither a secret nor certificates: nothing would
    /// say who may join.
    #[error(
        "without a table nothing says who may join: give a secret file or certificates, or say `insecure` if nobody else reaches that network"
    )]
    NoTrust,
    /// The silo's certificate does not name its cluster or its address.
    #[error(transparent)]
    Certificate(#[from] CertificatesError),
    /// `start` was called before.
    #[error("this transport was started before: every silo needs a transport of its own")]
    AlreadyStarted,
    /// Anything else; for transports of applications.
    #[error("the transport did not start: {0}")]
    Other(#[source] Box<dyn std::error::Error + Send + Sync>),
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; stop the process that listens there, or choose another port (0 = any free one)"
        }
        io::ErrorKind::AddrNotAvailable => {
            "; it is no address of this machine: listen on 0.0.0.0 and advertise it instead"
        }
        io::ErrorKind::PermissionDenied => "; ports below 1024 need a privilege",
        _ => "",
    }
}
