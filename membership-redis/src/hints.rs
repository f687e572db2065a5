//! Hints from a channel: each commit publishes, and a connection of its own is subscribed.
//!
//! Redis keeps no messages for clients that are away, so every (re)subscription notifies once.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use membership_core::{TableError, TableErrorKind};
use membership_provider::{HintSource, Notifier};
use redis::{PushInfo, PushKind};
use tokio::sync::Notify;

use crate::client::Client;
use crate::connection::Connection;
use crate::error::{Refusal, error};
use crate::keys::Keys;

/// How often a silent connection is checked.
const PING: Duration = Duration::from_secs(15);

/// A subscription to the cluster's channel.
pub(crate) struct Subscription {
    client: Arc<Client>,
    channel: String,
}

impl Subscription {
    pub(crate) fn new(client: &Arc<Client>, keys: &Keys) -> Self {
        Self {
            client: Arc::clone(client),
            channel: keys.channel.clone(),
        }
    }

    /// A connection to any server that passes on messages, and the sign that it has ended.
    async fn open(&self, notifier: &Notifier) -> Result<(Connection, Arc<Notify>), TableError> {
        let connector = &self.client.connector;
        let mut last = error(TableErrorKind::Unavailable, "no server is named");
        for endpoint in self.client.topology.endpoints(connector).await? {
            let (notifier, ended) = (notifier.clone(), Arc::new(Notify::new()));
            let disconnected = Arc::clone(&ended);
            let push = move |info: PushInfo| match info.kind {
                PushKind::Message => notifier.notify(),
                PushKind::Disconnection => disconnected.notify_one(),
                _ => {}
            };
            match connector.open(&endpoint, push).await {
                Ok(connection) => return Ok((connection, ended)),
                Err(e) => last = e,
            }
        }
        Err(last)
    }
}

#[async_trait]
impl HintSource for Subscription {
    async fn listen(&self, notifier: &Notifier) -> TableError {
        let (connection, ended) = match self.open(notifier).await {
            Ok(both) => both,
            Err(e) => return e,
        };
        let endpoint = &connection.endpoint;
        let mut raw = connection.raw();
        let Ok(subscribed) = tokio::time::timeout(PING, raw.subscribe(&self.channel)).await else {
            return error(
                TableErrorKind::Unavailable,
                format!("{endpoint} does not answer SUBSCRIBE"),
            );
        };
        if let Err(e) = subscribed {
            let connector = &self.client.connector;
            return match Refusal::of(&e) {
                Some(refusal) => refusal
                    .into_error(&connector.secrets)
                    .at(endpoint.to_string()),
                None => connector.not_connected(endpoint, &e),
            };
        }
        notifier.connected();
        let ping = redis::cmd("PING");
        while connection.is_alive() {
            tokio::select! {
                () = ended.notified() => break,
                () = tokio::time::sleep(PING) => match tokio::time::timeout(PING, connection.command(&ping)).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(_)) | Err(_) => break,
                },
            }
        }
        error(
            TableErrorKind::Unavailable,
            format!("the connection to {endpoint} has ended"),
        )
    }
}
