//! What `membership-fuzz` calls: the parts of a connection that read bytes of others, without
//! sockets and clocks. Not part of the public API.

use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use membership_core::{ClusterKeys, ClusterName, ClusterView, InstanceId};

use super::frame::{self, Assembler, CHUNK, FrameError, Taken};
use super::handshake::{self, Agreed, HandshakeError, Introduction, Me, Secured};
use super::roll::Roll;
use super::{again, carry, config::TcpConfig, terse};
use crate::transport::header::Fixed;
use crate::transport::tls::{Proven, judge_certificates, parse_secret, read_pem};
use crate::transport::{DecodeError, EncodedMessage, Hello, SiloKey};
use membership_core::protocol::Header;

/// What ties proofs to the connections here: all of them are the same one.
const BINDING: [u8; 32] = [5; 32];

/// A silo at one end of a connection.
#[derive(Clone, Debug)]
pub struct End {
    me: Me,
    secured: Option<Secured>,
}

/// What an end makes of the bytes of the other one.
#[derive(Debug)]
pub struct Heard {
    /// The address and the instance of the other side, if it is believed; or why it is not.
    pub peer: Result<(SocketAddr, InstanceId), String>,
    /// What this end sent.
    pub said: Vec<u8>,
    /// How many bytes it took.
    pub taken: usize,
}

impl End {
    /// An end without TLS.
    #[must_use]
    pub fn plain(hello: &Hello) -> Self {
        let (me, secured) = (Me::from(hello), None);
        Self { me, secured }
    }

    /// An end within TLS that has read the table, and that demands `secret` besides. `peer` is who
    /// has proven to be at the other end.
    #[must_use]
    pub fn secured(
        hello: &Hello,
        view: ClusterView,
        secret: Option<ClusterKeys>,
        peer: InstanceId,
    ) -> Self {
        let mut end = Self::plain(hello);
        end.me.roll = Arc::new(Roll::new(&view));
        (end.me.view, end.me.secret) = (Some(view), secret);
        let binding = BINDING;
        let peer = Proven::Key(peer);
        end.secured = Some(Secured { peer, binding });
        end
    }

    /// An end within TLS that has proven certificates: each side proves its key after its
    /// introduction. `key` is this side's, and `hello` names its instance.
    #[must_use]
    pub fn certified(hello: &Hello, view: ClusterView, key: &SiloKey) -> Self {
        let mut end = Self::secured(hello, view, None, key.instance());
        (end.me.key, end.me.needs_certificates) = (Some(key.clone()), true);
        let (peer, binding) = (Proven::Certificate, BINDING);
        end.secured = Some(Secured { peer, binding });
        end
    }

    /// The handshake of the side that was dialled, with these bytes from the other one.
    #[must_use]
    pub fn accept(&self, bytes: &[u8]) -> Heard {
        let mut stream = tokio::io::join(bytes, Vec::new());
        let result = now(handshake::accept(
            &mut stream,
            &self.me,
            self.secured.as_ref(),
        ));
        heard(bytes, stream.into_inner(), result)
    }

    /// The handshake of the side that dials.
    #[must_use]
    pub fn dial(&self, bytes: &[u8]) -> Heard {
        let mut stream = tokio::io::join(bytes, Vec::new());
        let result = now(handshake::dial(
            &mut stream,
            &self.me,
            self.secured.as_ref(),
        ));
        heard(bytes, stream.into_inner(), result)
    }
}

fn heard(
    all: &[u8],
    (left, said): (&[u8], Vec<u8>),
    result: Option<Result<(Introduction, Agreed), HandshakeError>>,
) -> Heard {
    let result = result.unwrap_or(Err(HandshakeError::Dismissed));
    Heard {
        peer: result
            .map(|(peer, _)| (peer.advertise, peer.instance))
            .map_err(|error| error.to_string()),
        said,
        taken: all.len() - left.len(),
    }
}

/// What a handshake has fixed: what this header says.
#[derive(Clone, Debug)]
pub struct Handshaken(Fixed);

impl From<&Header> for Handshaken {
    fn from(header: &Header) -> Self {
        Self(Fixed {
            cluster: header.cluster,
            protocol: header.protocol,
            from: header.from,
            instance: header.instance,
            to: header.to,
            table_id: header.table_id,
        })
    }
}

impl Handshaken {
    /// The whole message that the content of a terse frame means.
    ///
    /// # Errors
    /// It is none.
    pub fn restore(&self, content: &[u8]) -> Result<Vec<u8>, DecodeError> {
        terse::restore(content, &self.0)
    }
}

/// Reads frames after the handshake, as a connection of a member or of somebody else does: gives
/// each message to `each`, and returns why the connection ends.
pub fn read(
    mut bytes: &[u8],
    is_member: bool,
    handshake: &Handshaken,
    mut each: impl FnMut(Vec<u8>),
) -> String {
    let limit = TcpConfig::default().max_message_bytes;
    let ends = async {
        let mut assembler = Assembler::default();
        loop {
            let next = frame::next(&mut bytes, &mut assembler, limit, || is_member);
            match next.await?.1 {
                Taken::Message(message) => each(message),
                Taken::Terse(content) => match handshake.restore(&content) {
                    Ok(message) => each(message),
                    Err(_) => return Err(FrameError::Garbage("a damaged message")),
                },
                Taken::Nothing | Taken::Dropped | Taken::Ping => {}
            }
        }
    };
    let ends: Option<Result<std::convert::Infallible, FrameError>> = now(ends);
    match ends {
        Some(Err(error)) => error.to_string(),
        None => "it waits, although all bytes are there".to_owned(),
    }
}

/// The frames of one message, as a connection sends them.
#[must_use]
pub fn write(message: &EncodedMessage, handshake: &Handshaken) -> Vec<u8> {
    let mut frames = Vec::new();
    if message.len() <= CHUNK {
        terse::put(&mut frames, message, &handshake.0);
    } else {
        for from in (0..message.len()).step_by(CHUNK) {
            carry::put_piece(&mut frames, message, from);
        }
    }
    frames
}

/// The frames of messages one after the other, as a connection of members without a table sends them.
#[must_use]
pub fn write_all(messages: &[EncodedMessage]) -> Vec<u8> {
    let (mut written, mut frames) = (again::Written::default(), Vec::new());
    for message in messages {
        written.put(&mut frames, message);
    }
    frames
}

/// The keys in the text of a secret file, or why it is refused.
///
/// # Errors
/// The reason, as the program shows it after the name of the file.
pub fn secret(text: &str) -> Result<ClusterKeys, String> {
    parse_secret(text)
}

/// Judges the certificates (DER) that a peer shows, the first of which is its own, by those of an
/// authority.
///
/// # Errors
/// The reason, as the log shows it.
pub fn certificates(
    authority: &[&[u8]],
    chain: &[&[u8]],
    cluster: &ClusterName,
    dialled: IpAddr,
    now: u64,
) -> Result<(), String> {
    let der = |all: &[&'_ [u8]]| -> Vec<_> { all.iter().map(|one| one.to_vec().into()).collect() };
    judge_certificates(&der(authority), &der(chain), cluster, dialled, now)
}

/// How many certificates are in the text of a file, and whether a private key is.
///
/// # Errors
/// The reason, as the program shows it after the name of the file.
pub fn pem(text: &[u8]) -> Result<(usize, bool), String> {
    read_pem(text)
}

/// The result of what never waits.
fn now<T>(what: impl Future<Output = T>) -> Option<T> {
    match pin!(what).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}
