//! Making connections: dialling, accepting, and the handshake of both.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use membership_core::InstanceId;
use tokio::io::BufReader;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::counters::add;
use super::handshake::{self, HandshakeError, Introduction};
use super::routes::{Phase, Shared};
use crate::transport::Inbox;

/// How long to wait after the system refused to hand out a connection, usually for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What each connection reads ahead: room for a few probes. Longer frames are read past it, and a silo of a large cluster has thousands
/// of connections that mostly rest.
const READ_AHEAD: usize = 512;

pub(super) type Reader = BufReader<OwnedReadHalf>;

/// A connection with a good handshake.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) reader: Reader,
    pub(super) writer: OwnedWriteHalf,
    /// Where others dial the other side, as it says.
    pub(super) advertise: SocketAddr,
    /// The process at the other end, as it says.
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
    // Without it a probe may wait for the acknowledgement of the one before. A system that cannot do it still works.
    let _ = stream.set_nodelay(true);
    let (reader, writer) = stream.into_split();
    (BufReader::with_capacity(READ_AHEAD, reader), writer)
}

/// Dials, within the two timeouts of the configuration. The error is for people.
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
                "{to} accepts connections, but says nothing within {limit:?}: the process hangs, or it is no silo"
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

/// One of a bounded number of places.
#[derive(Debug)]
pub(super) struct Place(Arc<AtomicUsize>);

impl Place {
    /// A place, unless all `limit` of them are taken.
    pub(super) fn take(taken: &Arc<AtomicUsize>, limit: usize) -> Option<Self> {
        if taken.fetch_add(1, Relaxed) < limit {
            return Some(Self(taken.clone()));
        }
        taken.fetch_sub(1, Relaxed);
        None
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Accepts connections until the transport stops.
pub(super) async fn accept_all(
    shared: Arc<Shared>,
    listener: TcpListener,
    inbox: Inbox,
    phase: watch::Receiver<Phase>,
) {
    let mut end = phase.clone();
    let mut failing = false;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = end.wait_for(|p| *p != Phase::Running) => return,
        };
        match accepted {
            Ok((stream, _)) => {
                failing = false;
                let config = &shared.config;
                let places = Place::take(&shared.incoming, config.max_incoming).zip(Place::take(
                    &shared.in_handshake,
                    config.max_incoming_handshakes,
                ));
                let Some((place, in_handshake)) = places else {
                    add(&shared.counters.refused_too_many, 1);
                    continue;
                };
                let (shared, inbox, phase) = (shared.clone(), inbox.clone(), phase.clone());
                tokio::spawn(async move {
                    let _place = place;
                    incoming(&shared, stream, in_handshake, &inbox, &phase).await;
                });
            }
            Err(error) => {
                // Said once, however long it lasts.
                if !failing {
                    tracing::warn!(%error, "cannot accept connections");
                }
                failing = true;
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn incoming(
    shared: &Arc<Shared>,
    stream: TcpStream,
    in_handshake: Place,
    inbox: &Inbox,
    phase: &watch::Receiver<Phase>,
) {
    // What the handshake needs is gone after it: connections are many, and live long.
    let connection = Box::pin(welcome(shared, stream, in_handshake, phase)).await;
    if let Some(connection) = connection {
        shared.run_incoming(connection, inbox, phase).await;
    }
}

/// The handshake with whoever dialled.
async fn welcome(
    shared: &Shared,
    stream: TcpStream,
    _in_handshake: Place,
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
