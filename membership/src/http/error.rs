//! Why a server did not start.

use std::io;
use std::net::SocketAddr;

use super::token::TokenError;

crate::debug_as_display!(HttpError);

/// Why [`Server::start`](super::Server::start) failed. Nothing listens then.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address} for HTTP: {source}")]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// The address is not a loopback address, and TLS or a token is missing.
    #[error(
        "{address} is not a loopback address: give TLS and a token, or say that it may be read without"
    )]
    Open {
        /// The address asked for.
        address: SocketAddr,
    },
    /// The files for TLS cannot be used.
    #[error("{0}")]
    Tls(String),
    /// The file with tokens cannot be used.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The system gives no random numbers, no thread or no runtime.
    #[error("cannot start a server for HTTP: {0}")]
    System(String),
    /// A recorder for metrics is installed in this process already.
    #[error(
        "another recorder for metrics is installed in this process: make an `Exporter` of its handle with `Exporter::of`"
    )]
    Recorder,
}
