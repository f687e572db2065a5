//! Hints: LISTEN over a connection of its own.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{Either, select};
use membership_core::{TableError, TableErrorKind};
use membership_provider::{HintSource, Notifier};
use tokio::time::timeout;
use tokio_postgres::AsyncMessage;

use super::client::Listener;
use super::error::{Phase, error, from_pg, lost};

/// How often a silent connection is checked.
const CHECK_PERIOD: Duration = Duration::from_secs(15);

#[async_trait]
impl HintSource for Listener {
    async fn listen(&self, notifier: &Notifier) -> TableError {
        let limit = self.client.config.operation_timeout;
        let late = || lost(Phase::Reading, "the server did not answer in time");
        let (driver, mut wire) = match timeout(limit, self.client.dial(false)).await {
            Ok(Ok(connected)) => connected,
            Ok(Err(e)) => return e,
            Err(_) => return late(),
        };
        let messages = std::pin::pin!(async {
            loop {
                match std::future::poll_fn(|cx| wire.poll_message(cx)).await {
                    Some(Ok(AsyncMessage::Notification(_))) => notifier.notify(),
                    Some(Ok(_)) => {}
                    Some(Err(e)) => return from_pg(e, Phase::Reading),
                    None => return error(TableErrorKind::Unavailable, "the connection ended"),
                }
            }
        });
        let requests = std::pin::pin!(async {
            let listen = format!("LISTEN {}", self.channel);
            match timeout(limit, driver.batch_execute(&listen)).await {
                Ok(Ok(())) => notifier.connected(),
                Ok(Err(e)) => return from_pg(e, Phase::Reading),
                Err(_) => return late(),
            }
            loop {
                tokio::time::sleep(CHECK_PERIOD).await;
                match timeout(limit, driver.check_connection()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(e)) => return from_pg(e, Phase::Reading),
                    Err(_) => return late(),
                }
            }
        });
        match select(messages, requests).await {
            Either::Left((ended, _)) | Either::Right((ended, _)) => ended,
        }
    }
}
