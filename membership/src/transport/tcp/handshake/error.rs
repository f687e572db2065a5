//! Why a handshake failed.

use std::net::SocketAddr;

use super::Versions;
use crate::transport::Kind as Part;
use crate::transport::tcp::frame::FrameError;

/// The longest reason of the other side that is shown.
const MAX_REASON_CHARS: usize = 200;

/// Who the other side has shown to be, where its secret or certificate is missing or wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transport::tcp) enum Claim {
    /// A silo that is alive in the confirmed view, at the address in its row: its key proves it.
    Member(SocketAddr),
    /// A process without a row that has proven a key of the cluster, at the address that it says.
    Newcomer(SocketAddr),
    /// Anybody.
    Stranger,
}

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
pub(in crate::transport::tcp) enum HandshakeError {
    /// The other side does not speak this protocol.
    #[error(
        "what answers there is not a silo, or one of the two speaks TLS and the other does not"
    )]
    Foreign,
    /// The connection broke, or a frame was wrong.
    #[error("handshake failed: {0}")]
    Frame(#[from] FrameError),
    /// Damaged.
    #[error("damaged handshake: {0}")]
    Damaged(#[from] postcard::Error),
    /// Another cluster, without TLS.
    #[error("it belongs to another cluster")]
    Cluster,
    /// It says to be another process than the one that its key proves.
    #[error("it says to be another process than its key proves")]
    OtherInstance,
    /// Its row has another address.
    #[error("it says another address than its row in the table")]
    OtherAddress,
    /// Neither in the table nor in possession of its key.
    #[error("it has no row in the table and no key of the cluster")]
    Unproven,
    /// Without the certificate that this silo demands.
    #[error("it shows no certificate")]
    NoCertificate(Claim),
    /// Without the secret that this silo demands.
    #[error("it shows no secret")]
    NoSecret(Claim),
    /// With another secret.
    #[error("its secret is none of this silo's")]
    WrongSecret(Claim),
    /// This silo has not read the table.
    #[error("another process, which this silo cannot judge before it has read the table")]
    TooEarly,
    /// The other side closed the connection when it heard who this silo is.
    #[error(
        "it closed the connection after this silo's introduction: it belongs to another cluster, demands a secret or a certificate, or one of the two has not read the table; its log says which, at level debug"
    )]
    Dismissed,
    /// No version in common.
    #[error("no common protocol version: it supports {} to {}, this silo {} to {}", .theirs.min, .theirs.max, .mine.min, .mine.max)]
    Version { theirs: Versions, mine: Versions },
    /// It takes part in something else.
    #[error("it is {theirs}, and this process is {mine}: give each the addresses of its own kind")]
    OtherPart { theirs: Part, mine: Part },
    /// The other side refused; its reason.
    #[error("refused by the other side: {0}")]
    Refused(String),
}

impl From<std::io::Error> for HandshakeError {
    fn from(error: std::io::Error) -> Self {
        Self::Frame(error.into())
    }
}

/// Text of the other side, made safe for a log: without what ends a line, controls a terminal or
/// turns the direction of text.
pub(super) fn readable(text: &str) -> String {
    let controls = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars()
        .take(MAX_REASON_CHARS)
        .map(|c| if controls(c) { '\u{fffd}' } else { c })
        .collect()
}
