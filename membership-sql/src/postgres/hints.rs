//! LISTEN: a connection of its own, made when somebody wants to hear of commits, and made again when it breaks.
//!
//! After every new connection the bell rings once, because commits may have passed unheard. It ends when the table is dropped.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tokio_postgres::{AsyncMessage, Client, Connection, Socket};

use super::link::Line;
use super::tls::Stream;
use crate::bell::Bell;

/// The other half of a client: what the server sends.
pub(super) type Wire = Connection<Socket, Stream<Socket>>;

/// Between two attempts to connect: short at first, so that a server that was restarted is heard again soon.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// At most this long, so that a server that is away is not pestered and one that is back is found.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How often a silent connection is asked whether it is still one.
const PING: Duration = Duration::from_secs(15);

/// The channel of a cluster: within the server's 63 bytes for names, and without a character that needs quotes.
pub(super) fn channel(fingerprint: u64) -> String {
    format!("membership_{fingerprint:016x}")
}

/// Listens until the table is gone.
pub(super) async fn listen(line: Weak<Line>, channel: String, bell: Arc<Bell>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let Some(strong) = line.upgrade() else { return };
        let limit = strong.config.operation_timeout;
        let dialled = timeout(limit, strong.dial()).await;
        drop(strong);
        if let Ok(Ok((client, wire))) = dialled {
            let began = Instant::now();
            hear(client, wire, &channel, &bell, limit).await;
            // One that held is no reason to wait long for the next.
            if began.elapsed() > LONGEST_PAUSE {
                pause = FIRST_PAUSE;
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Until the connection breaks.
async fn hear(client: Client, mut wire: Wire, channel: &str, bell: &Bell, limit: Duration) {
    let messages = async {
        while let Some(Ok(message)) = std::future::poll_fn(|cx| wire.poll_message(cx)).await {
            if let AsyncMessage::Notification(_) = message {
                bell.ring();
            }
        }
    };
    let questions = async {
        let listen = format!("LISTEN {channel}");
        if !matches!(
            timeout(limit, client.batch_execute(&listen)).await,
            Ok(Ok(()))
        ) {
            return;
        }
        bell.ring();
        loop {
            tokio::time::sleep(PING).await;
            if !matches!(timeout(limit, client.check_connection()).await, Ok(Ok(()))) {
                return;
            }
        }
    };
    futures_util::future::select(std::pin::pin!(messages), std::pin::pin!(questions)).await;
}

#[cfg(test)]
mod tests {
    #[test]
    fn channels_are_plain_names_of_less_than_64_bytes() {
        let name = super::channel(u64::MAX);
        assert!(
            name.len() < 64
                && name
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
            "{name}"
        );
    }
}
