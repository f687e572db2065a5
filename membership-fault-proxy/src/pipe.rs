//! One connection through a proxy.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::exchanges::Verdict;
use crate::fault::{QUIET, Way};
use crate::shared::Shared;
use crate::socket_owner;
use crate::tls::Session;

/// How long a server may work on the request of a client that is gone. Then its connection is
/// closed.
const LATE: Duration = Duration::from_secs(5);

/// How long to wait for unrequested records of the server at the end of a handshake: for the first
/// connection, for later ones if the first had such records, and from one record to the next.
const FIRST_TICKET: Duration = Duration::from_secs(1);
const TICKET: Duration = Duration::from_millis(300);
const NEXT_TICKET: Duration = Duration::from_millis(3);

/// Whether bytes are one message by which a side asks whether the other is there, or says that it
/// is, and nothing else: `OPTIONS` of a client of Cassandra, a frame without a body; the `PING` of a
/// server of NATS, two seconds after a client has connected, and that client's `PONG`.
fn is_keep_alive(way: Way, bytes: &[u8]) -> bool {
    const OPTIONS: u8 = 5;
    match way {
        Way::Requests => matches!(bytes, [3..=5, _, _, _, OPTIONS, 0, 0, 0, 0] | b"PONG\r\n"),
        Way::Answers => bytes == b"PING\r\n",
    }
}

/// How a connection ends for its client.
enum End {
    /// The side that sends has closed it.
    Gone,
    Closed,
    Reset,
}

/// Registered in the shared state for as long as it lives.
struct Connection<'s> {
    shared: &'s Shared,
    id: u64,
    /// Between servers.
    link: bool,
    epoch: u64,
    tls: Mutex<Session>,
}

impl Connection<'_> {
    fn tls(&self) -> MutexGuard<'_, Session> {
        self.tls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before the first request: waits for the unrequested records of the server at the end of a
    /// handshake, which would look like the answer. All connections of one server behave the same,
    /// so the first one decides how long the others wait.
    async fn wait_for_tickets(&self) {
        self.shared.state().exchanges.delay_request(self.id);
        let at_most = match self.shared.state().tickets {
            None => FIRST_TICKET,
            Some(true) => TICKET,
            Some(false) => Duration::ZERO,
        };
        let deadline = Instant::now() + at_most;
        let mut seen = self.tls().records_since();
        while seen == 0 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(1)).await;
            seen = self.tls().records_since();
        }
        self.shared.state().tickets.get_or_insert(seen > 0);
        let mut before = 0;
        while before < seen {
            tokio::time::sleep(NEXT_TICKET).await;
            (before, seen) = (seen, self.tls().records_since());
        }
        self.tls().request_sent();
    }

    /// Waits until this connection is cut.
    async fn cut(&self) {
        self.shared
            .until(|state| state.epoch(self.link) != self.epoch)
            .await;
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        self.shared.change(|state| state.exchanges.closed(self.id));
    }
}

/// Forwards bytes until one of the two ends closes, or a fault cuts the connection. With one
/// exception it does not matter which end closes: a server that has a request to answer is not told
/// that its client is gone, so that its answer shows when the request has been carried out.
pub(crate) async fn run(shared: Arc<Shared>, mut client: TcpStream, target: Option<SocketAddr>) {
    // Where the owner of the socket is unknown, every connection counts as a client's.
    let others = shared.state().other_processes;
    let link = !others && socket_owner::held_here(&client) == Some(false);
    let (epoch, away, id) = shared.change(|state| {
        (
            state.epoch(link),
            state.away.is_some(),
            state.exchanges.connect(link),
        )
    });
    let connection = Connection {
        shared: &shared,
        id,
        link,
        epoch,
        tls: Mutex::default(),
    };
    let server = async {
        match target {
            Some(target) => TcpStream::connect(target).await.ok(),
            None => None,
        }
    };
    let server = tokio::select! {
        server = server, if !away => server,
        () = connection.cut(), if !away => None,
        else => None,
    };
    let Some(mut server) = server else {
        let _ = client.set_zero_linger();
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let end = {
        let ((client_read, client_write), (server_read, server_write)) =
            (client.split(), server.split());
        let mut answers =
            std::pin::pin!(pump(&connection, Way::Answers, server_read, client_write));
        tokio::select! {
            end = pump(&connection, Way::Requests, client_read, server_write) => match end {
                End::Gone if shared.change(|s| s.exchanges.client_closed(id)) => tokio::select! {
                    end = tokio::time::timeout(LATE, &mut answers) => end.unwrap_or(End::Closed),
                    () = connection.cut() => End::Reset,
                },
                end => end,
            },
            end = &mut answers => end,
            () = connection.cut() => End::Reset,
        }
    };
    if let End::Reset = end {
        let _ = client.set_zero_linger();
    }
}

async fn pump(
    connection: &Connection<'_>,
    way: Way,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
) -> End {
    let mut buffer = vec![0; 1 << 16];
    let mut cut_due = false;
    // The last byte of an answer that is cut before it.
    let mut held_back: Option<u8> = None;
    let mut first = way == Way::Requests && !connection.link;
    loop {
        let read = from.read(&mut buffer);
        let read = if cut_due {
            tokio::time::timeout(QUIET, read).await
        } else {
            Ok(read.await)
        };
        let bytes = match read {
            Ok(Ok(0) | Err(_)) if held_back.is_none() => return End::Gone,
            Ok(Ok(n)) if n > 0 => &buffer[..n],
            // The server has closed the connection or sent nothing for a while: its answer is
            // complete.
            Ok(_) | Err(_) => {
                connection
                    .shared
                    .change(|state| state.exchanges.cut_done(connection.id));
                return End::Closed;
            }
        };
        // Bytes of a handshake come before the data.
        let handshake_bytes = if connection.link {
            0
        } else {
            connection.tls().handshake(way, bytes)
        };
        let (handshake_bytes, data) = bytes.split_at(handshake_bytes);
        for (bytes, is_handshake) in [(handshake_bytes, true), (data, false)] {
            if bytes.is_empty() {
                continue;
            }
            if !is_handshake && way == Way::Requests && connection.tls().awaits_tickets() {
                connection.wait_for_tickets().await;
            }
            let (verdict, held) = {
                let mut state = connection.shared.state();
                // A cut takes effect at once, not when this task is woken.
                if state.epoch(connection.link) != connection.epoch {
                    return End::Reset;
                }
                if std::mem::take(&mut first)
                    && state
                        .monitoring
                        .is_some_and(|is_monitoring| is_monitoring(bytes))
                {
                    state.exchanges.ignore(connection.id);
                }
                let exchanges = &mut state.exchanges;
                let verdict = if is_handshake {
                    exchanges.handshake(connection.id, way)
                } else if is_keep_alive(way, bytes) {
                    exchanges.keep_alive(connection.id, way)
                } else {
                    if way == Way::Requests {
                        exchanges.begins(connection.id, bytes);
                    }
                    exchanges.passes(connection.id, way, bytes.len())
                };
                (verdict, exchanges.fired())
            };
            if held {
                // Wakes those who wait for the fault, and the other connections, which are held
                // now.
                connection.shared.change(|_| ());
            }
            match verdict {
                Verdict::Swallow => continue,
                Verdict::Pass => {}
                Verdict::PassThenCut { .. } => cut_due = true,
                Verdict::Cut { keep, reset } => {
                    connection
                        .shared
                        .change(|state| state.exchanges.cut_done(connection.id));
                    if keep > 0 && to.write_all(&bytes[..keep]).await.is_ok() {
                        let _ = to.flush().await;
                    }
                    return if reset { End::Reset } else { End::Closed };
                }
            }
            connection
                .shared
                .gate(connection.id, connection.link, way)
                .await;
            if connection.shared.state().epoch(connection.link) != connection.epoch {
                return End::Reset;
            }
            let earlier = held_back.take();
            let mut bytes = bytes;
            if let Verdict::PassThenCut { hold_last: true } = verdict
                && let Some((last, rest)) = bytes.split_last()
            {
                (held_back, bytes) = (Some(*last), rest);
            }
            let earlier = earlier.as_slice();
            if to.write_all(earlier).await.is_err() || to.write_all(bytes).await.is_err() {
                return End::Closed;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_keep_alive;
    use crate::fault::Way;

    #[test]
    fn only_a_frame_of_options_alone_keeps_alive() {
        let options = [4, 0, 0, 7, 5, 0, 0, 0, 0];
        assert!(is_keep_alive(Way::Requests, &options));
        assert!(!is_keep_alive(Way::Answers, &options));
        assert!(!is_keep_alive(Way::Requests, &[options, options].concat()));
        // A query.
        assert!(!is_keep_alive(Way::Requests, &[4, 0, 0, 7, 7, 0, 0, 0, 0]));
    }

    #[test]
    fn only_a_server_asks_with_ping_and_only_a_client_answers_with_pong() {
        assert!(is_keep_alive(Way::Answers, b"PING\r\n"));
        assert!(is_keep_alive(Way::Requests, b"PONG\r\n"));
        // A client's question of Redis, and the answers of Redis and NATS.
        assert!(!is_keep_alive(Way::Requests, b"PING\r\n"));
        assert!(!is_keep_alive(Way::Answers, b"+PONG\r\n"));
        assert!(!is_keep_alive(Way::Answers, b"PONG\r\n"));
        // A request comes with it.
        assert!(!is_keep_alive(Way::Requests, b"PONG\r\nPUB a 0\r\n\r\n"));
    }
}
