//! Accepting connections.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;

use super::connect::accept_handshake;
use super::counters::add;
use super::shared::{InHandshake, Phase, Shared};
use crate::transport::Inbox;

/// How long to wait after the system refused to hand out a connection, usually for want of file
/// descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections until the transport stops.
pub(super) async fn accept_all(
    shared: Arc<Shared>,
    listener: TcpListener,
    inbox: Arc<dyn Inbox>,
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
            Ok((stream, from)) => {
                failing = false;
                let Some(admission) = shared.admit(from.ip()) else {
                    add(&shared.counters.refused_too_many, 1);
                    continue;
                };
                let (shared, inbox, phase) = (shared.clone(), inbox.clone(), phase.clone());
                tokio::spawn(async move {
                    let _connection = admission.connection;
                    incoming(
                        &shared,
                        (stream, from.ip()),
                        admission.handshake,
                        &inbox,
                        &phase,
                    )
                    .await;
                });
            }
            Err(error) => {
                // Logged once, however long it lasts.
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
    (stream, from): (TcpStream, IpAddr),
    in_handshake: InHandshake,
    inbox: &Arc<dyn Inbox>,
    phase: &watch::Receiver<Phase>,
) {
    // Boxed, so that the handshake's memory is free after it: connections are many and live long.
    let connection = Box::pin(accept_handshake(shared, stream, in_handshake, phase)).await;
    if let Some(connection) = connection {
        shared.run_incoming(connection, from, inbox, phase).await;
    }
}
