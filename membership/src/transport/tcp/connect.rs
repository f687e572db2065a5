//! Making a connection, and the handshake of both sides.

use std::net::SocketAddr;

use membership_core::InstanceId;
use tokio::io::BufReader;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;
use tokio::time::timeout;

use super::counters::add;
use super::handshake::{self, HandshakeError, Introduction};
use super::shared::{Permit, Phase, Shared};

/// What each connection reads ahead: room for a few probes. Longer frames are read past it, and a
/// silo of a large cluster has thousands of connections that are mostly idle.
const READ_AHEAD: usize = 512;

pub(super) type Reader = BufReader<OwnedReadHalf>;

/// A connection with a good handshake.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) reader: Reader,
    pub(super) writer: OwnedWriteHalf,
    /// Where others dial the other side, by its hello.
    pub(super) advertise: SocketAddr,
    /// The process at the other end, by its hello.
    pub(super) instance: InstanceId,
}

impl Connection {
    fn new(reader: Reader, writer: OwnedWriteHalf, peer: &Introduction) -> Self {
        Self {
            reader,
            writer,
            advertise: peer.advertise,
            instance: peer.instance,
        }
    }
}

fn halves(stream: TcpStream) -> (Reader, OwnedWriteHalf) {
    // Without this option a probe may wait for the acknowledgement of the one before. The transport
    // also works on a system that does not support it.
    let _ = stream.set_nodelay(true);
    let (reader, writer) = stream.into_split();
    (BufReader::with_capacity(READ_AHEAD, reader), writer)
}

/// Dials, with the two timeouts of the configuration. The error is for people.
pub(super) async fn dial(
    shared: &Shared,
    to: SocketAddr,
    me: &Introduction,
) -> Result<Connection, String> {
    let attempt = async {
        let limit = shared.config.connect_timeout;
        let stream = match timeout(limit, TcpStream::connect(to)).await {
            Err(_) => {
                return Err(format!(
                    "cannot connect to {to}: no answer within {limit:?}"
                ));
            }
            Ok(Err(error)) => return Err(format!("cannot connect to {to}: {error}")),
            Ok(Ok(stream)) => stream,
        };
        let (mut reader, mut writer) = halves(stream);
        let limit = shared.config.handshake_timeout;
        match timeout(limit, handshake::dial(&mut reader, &mut writer, me)).await {
            Err(_) => Err(format!(
                "{to} accepts connections, but sends nothing within {limit:?}: the process hangs, or it is not a silo"
            )),
            Ok(Err(error)) => Err(format!("{to}: {error}")),
            Ok(Ok(peer)) => Ok(Connection::new(reader, writer, &peer)),
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

/// The handshake of an incoming connection.
pub(super) async fn accept_handshake(
    shared: &Shared,
    stream: TcpStream,
    _in_handshake: Permit,
    phase: &watch::Receiver<Phase>,
) -> Option<Connection> {
    let me = shared.introduction()?;
    let (mut reader, mut writer) = halves(stream);
    let mut end = phase.clone();
    let result = tokio::select! {
        result = timeout(shared.config.handshake_timeout, handshake::accept(&mut reader, &mut writer, &me)) => result,
        _ = end.wait_for(|p| *p != Phase::Running) => return None,
    };
    match result {
        Ok(Ok(peer)) => {
            add(&shared.counters.accepted, 1);
            Some(Connection::new(reader, writer, &peer))
        }
        Ok(Err(error)) => {
            let counter = match &error {
                HandshakeError::Cluster { .. } => &shared.counters.refused_cluster,
                HandshakeError::Version { .. } => &shared.counters.refused_version,
                _ => &shared.counters.refused_handshake,
            };
            add(counter, 1);
            tracing::debug!(%error, "connection refused");
            None
        }
        Err(_) => {
            add(&shared.counters.handshake_timeouts, 1);
            None
        }
    }
}
