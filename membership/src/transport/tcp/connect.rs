//! Making a connection, and the handshake of both sides.

use std::io;
use std::net::SocketAddr;

use membership_core::protocol::PeerIdentity;
use membership_core::{ClusterKeys, InstanceId};
use tokio::io::{AsyncRead, AsyncWrite, BufReader, ReadHalf, WriteHalf, split};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

use super::counters::add;
use super::handshake::{self, Agreed, HandshakeError, Introduction, Me, Secured};
use super::link::Besides;
use super::refusals::Refusal;
use super::roll::Standing;
use super::shared::{InHandshake, Phase, Shared};
use super::stream::{Metered, Stream};
use crate::transport::tls::{self, Proven, Tls, of_certificate};
use crate::transport::{Kind, SendFailure};

/// What each connection reads ahead: room for a few probes. Longer frames are read past it, and a
/// silo of a large cluster has thousands of connections that are mostly idle.
const READ_AHEAD: usize = 512;

/// The part of the time of a handshake in which the other side must have said what it wants.
const SILENT: u32 = 2;

pub(super) type Reader = BufReader<ReadHalf<Stream>>;
pub(super) type Writer = WriteHalf<Stream>;

/// A connection with a good handshake.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) reader: Reader,
    pub(super) writer: Writer,
    /// Where others dial the other side, by its hello.
    pub(super) advertise: SocketAddr,
    /// The process at the other end, by its hello.
    pub(super) instance: InstanceId,
    /// The process at the other end, by its key.
    pub(super) peer: PeerIdentity,
    /// What the confirmed view said of it when it was believed, and the keys of that view.
    pub(super) standing: Standing,
    pub(super) keys: ClusterKeys,
    /// What else it was believed for.
    pub(super) besides: Besides,
    /// What messages of silos need not repeat.
    pub(super) agreed: Option<Agreed>,
}

impl Connection {
    fn new(
        mut stream: Stream,
        secured: Option<&Secured>,
        me: &Me,
        (peer, agreed): (Introduction, Agreed),
    ) -> Self {
        stream.trust();
        let (reader, writer) = split(stream);
        Self {
            reader: BufReader::with_capacity(READ_AHEAD, reader),
            writer,
            advertise: peer.advertise,
            instance: peer.instance,
            peer: Secured::identity(secured, &peer),
            standing: me.roll.standing(peer.instance),
            keys: me.cluster_keys(),
            besides: Besides {
                certificate: secured.is_some_and(|s| s.peer == Proven::Certificate),
                secret: me.secret.clone(),
            },
            agreed: (me.part == Kind::Table).then_some(agreed),
        }
    }
}

/// Takes a TLS connection apart.
fn taken<S>(
    secured: tls::Secured<S>,
    into: impl FnOnce(tokio_rustls::TlsStream<S>) -> Stream,
) -> (Stream, Option<Secured>) {
    let tls::Secured {
        stream,
        peer,
        binding,
    } = secured;
    (into(stream), Some(Secured { peer, binding }))
}

/// The handshake of the side that dialled.
async fn introduce(
    shared: &Shared,
    stream: TcpStream,
    to: SocketAddr,
    me: &Me,
) -> Result<Connection, SendFailure> {
    let stream = metered(shared, stream);
    let (mut stream, secured) = match &shared.tls {
        None => (Stream::Plain(stream), None),
        Some(tls) => {
            let secured = match tls.dial(stream, to, Some(&me.cluster)).await {
                Err(_) if tls.may_dial_without() => {
                    let again = TcpStream::connect(to).await;
                    let again = again.map_err(|error| unconnected(&error, error.to_string()))?;
                    tls.dial(metered(shared, again), to, None).await
                }
                result => result,
            };
            let secured = secured.map_err(|error| {
                if let Some(why) = of_certificate(&error) {
                    shared
                        .refusals
                        .dialled(to, me, None, Refusal::Certificate(why));
                }
                SendFailure::new(unsecured(&error, tls.needs_certificates()))
            })?;
            taken(secured, |stream| Stream::Secured(Box::new(stream)))
        }
    };
    let introduced = handshake::dial(&mut stream, me, secured.as_ref())
        .await
        .map_err(|error| {
            if let Some(refusal) = Refusal::of(&error) {
                let proven = secured.as_ref().map(|secured| secured.peer);
                shared.refusals.dialled(to, me, proven, refusal);
            }
            SendFailure::new(error.to_string())
        })?;
    Ok(Connection::new(stream, secured.as_ref(), me, introduced))
}

/// Why the system made no connection. It alone knows whether a process listens there: what comes
/// later is said by a process.
fn unconnected(error: &io::Error, reason: String) -> SendFailure {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => SendFailure::refused(reason),
        _ => SendFailure::new(reason),
    }
}

/// A connection whose other end has proven nothing yet.
fn metered(shared: &Shared, stream: TcpStream) -> Metered {
    let certificates = shared.tls.as_ref().is_some_and(Tls::has_certificates);
    Metered::new(stream, certificates)
}

/// Why there is no TLS connection, for people.
fn unsecured(error: &io::Error, needs_certificates: bool) -> String {
    if let Some(why) = of_certificate(error) {
        return why.to_owned();
    }
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset if needs_certificates => {
            "it closed the connection instead of TLS: it has no certificates (while a cluster moves to them, start this silo with `--tls-optional`), it is not a silo, it takes no more connections, or its security is `none`".to_owned()
        }
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
            "it closed the connection instead of TLS: it is not a silo, it takes no more connections, or its security is `none`".to_owned()
        }
        io::ErrorKind::InvalidData => {
            format!("no TLS connection: {error}; it is not a silo, or its security differs")
        }
        _ => format!("no TLS connection: {error}"),
    }
}

/// Dials, with the two timeouts of the configuration.
pub(super) async fn dial(
    shared: &Shared,
    to: SocketAddr,
    me: &Me,
) -> Result<Connection, SendFailure> {
    let attempt = async {
        let limit = shared.config.connect_timeout;
        let stream = match timeout(limit, TcpStream::connect(to)).await {
            Err(_) => {
                return Err(SendFailure::new(format!(
                    "cannot connect to {to}: no answer within {limit:?}"
                )));
            }
            Ok(Err(error)) => {
                let reason = format!("cannot connect to {to}: {error}");
                return Err(unconnected(&error, reason));
            }
            Ok(Ok(stream)) => stream,
        };
        let limit = shared.config.handshake_timeout;
        match timeout(limit, introduce(shared, stream, to, me)).await {
            Err(_) => Err(SendFailure::new(format!(
                "{to} accepts connections, but sends nothing within {limit:?}: the process hangs, or it is not a silo"
            ))),
            Ok(Err(mut failure)) => {
                failure.reason.insert_str(0, &format!("{to}: "));
                Err(failure)
            }
            Ok(Ok(connection)) => Ok(connection),
        }
    };
    let result = attempt.await;
    add(
        if result.is_ok() {
            &shared.counters.dialled
        } else {
            &shared.counters.dials_failed
        },
        1,
    );
    result
}

/// Why an incoming connection was refused.
enum Refused {
    /// It took too long.
    Late,
    Tls(io::Error),
    Handshake(HandshakeError),
}

async fn be_introduced(
    shared: &Shared,
    stream: TcpStream,
    in_handshake: &InHandshake,
) -> Result<Connection, Refused> {
    let stream = metered(shared, stream);
    let (mut stream, secured) = match &shared.tls {
        None => (Stream::Plain(stream), None),
        Some(tls) => {
            // There is none before the transport starts, and then nobody is heard.
            let cluster = shared.me().map(|me| me.cluster);
            let cluster = cluster.ok_or(Refused::Handshake(HandshakeError::TooEarly))?;
            let begun = timeout(shared.config.handshake_timeout / SILENT, Tls::hear(stream)).await;
            let begun = begun.map_err(|_| Refused::Late)?.map_err(Refused::Tls)?;
            in_handshake.turn().await;
            let secured = tls.accept(begun, &cluster).await.map_err(Refused::Tls)?;
            taken(secured, |stream| Stream::Secured(Box::new(stream)))
        }
    };
    let result = answer(shared, &mut stream, secured.as_ref()).await;
    let (me, introduced) = result.map_err(Refused::Handshake)?;
    Ok(Connection::new(stream, secured.as_ref(), &me, introduced))
}

async fn answer<S: AsyncRead + AsyncWrite + Unpin>(
    shared: &Shared,
    stream: &mut S,
    secured: Option<&Secured>,
) -> Result<(Me, (Introduction, Agreed)), HandshakeError> {
    // As late as possible: the view may be newer than it was when the connection was made.
    let me = shared.me().ok_or(HandshakeError::TooEarly)?;
    let introduced = handshake::accept(stream, &me, secured).await?;
    Ok((me, introduced))
}

/// The handshake of an incoming connection.
pub(super) async fn accept_handshake(
    shared: &Shared,
    stream: TcpStream,
    in_handshake: InHandshake,
    phase: &watch::Receiver<Phase>,
) -> Option<Connection> {
    let from = stream.peer_addr().ok();
    let mut end = phase.clone();
    let limit = shared.config.handshake_timeout;
    let result = tokio::select! {
        result = timeout(limit, be_introduced(shared, stream, &in_handshake)) => result,
        () = in_handshake.evicted() => {
            add(&shared.counters.refused_too_many, 1);
            return None;
        }
        _ = end.wait_for(|p| *p != Phase::Running) => return None,
    };
    let counters = &shared.counters;
    match result.unwrap_or(Err(Refused::Late)) {
        Ok(connection) => {
            add(&counters.accepted, 1);
            Some(connection)
        }
        Err(refused) => {
            let counter = match &refused {
                Refused::Late => &counters.handshake_timeouts,
                Refused::Handshake(HandshakeError::Cluster) => &counters.refused_cluster,
                Refused::Handshake(
                    HandshakeError::Unproven
                    | HandshakeError::OtherInstance
                    | HandshakeError::OtherAddress
                    | HandshakeError::TooEarly,
                ) => &counters.refused_unproven,
                Refused::Handshake(
                    HandshakeError::NoSecret(_) | HandshakeError::WrongSecret(_),
                ) => &counters.refused_secret,
                Refused::Handshake(HandshakeError::NoCertificate(_)) => {
                    &counters.refused_certificate
                }
                Refused::Tls(error) if of_certificate(error).is_some() => {
                    &counters.refused_certificate
                }
                Refused::Handshake(HandshakeError::Version { .. }) => &counters.refused_version,
                Refused::Handshake(_) | Refused::Tls(_) => &counters.refused_handshake,
            };
            add(counter, 1);
            let reason = match &refused {
                Refused::Late => "its handshake took too long".to_owned(),
                Refused::Tls(error) => {
                    of_certificate(error).map_or_else(|| error.to_string(), str::to_owned)
                }
                Refused::Handshake(error) => error.to_string(),
            };
            tracing::debug!(?from, reason, "connection refused");
            match &refused {
                Refused::Late => {}
                Refused::Tls(error) => {
                    if let (Some(why), Some(from)) = (of_certificate(error), from) {
                        shared.refuse_certificate_of(from.ip(), why);
                    }
                }
                Refused::Handshake(error) => shared.refusals.accepted(error),
            }
            None
        }
    }
}
