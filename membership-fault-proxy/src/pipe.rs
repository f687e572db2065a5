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

/// For how long a server may be at work for a client that is gone. Then it hears that nobody is there.
const LATE: Duration = Duration::from_secs(5);

/// For how long a server may work on the end of a handshake until it says something unasked: the first time, when it is known that it does, and
/// from one such word to the next.
const FIRST_TICKET: Duration = Duration::from_secs(1);
const TICKET: Duration = Duration::from_millis(300);
const NEXT_TICKET: Duration = Duration::from_millis(3);

/// How a connection ends for its client.
enum End {
    /// Whoever spoke is gone.
    Gone,
    Closed,
    Reset,
}

/// In the bookkeeping for as long as it lives.
struct Line<'s> {
    shared: &'s Shared,
    name: u64,
    /// Between servers.
    link: bool,
    epoch: u64,
    tls: Mutex<Session>,
}

impl Line<'_> {
    fn tls(&self) -> MutexGuard<'_, Session> {
        self.tls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before the first question: lets what the server says unasked at the end of a handshake come, which would look like the answer. Whether
    /// it says anything is the same for all connections; the first one tells.
    async fn let_tickets_come(&self) {
        self.shared.look().flights.hold_back(self.name);
        let at_most = match self.shared.look().tickets {
            None => FIRST_TICKET,
            Some(true) => TICKET,
            Some(false) => Duration::ZERO,
        };
        let deadline = Instant::now() + at_most;
        let mut seen = self.tls().since();
        while seen == 0 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(1)).await;
            seen = self.tls().since();
        }
        self.shared.look().tickets.get_or_insert(seen > 0);
        let mut before = 0;
        while before < seen {
            tokio::time::sleep(NEXT_TICKET).await;
            (before, seen) = (seen, self.tls().since());
        }
        self.tls().asks();
    }

    /// Waits until this connection is cut.
    async fn cut(&self) {
        self.shared
            .until(|state| state.epoch(self.link) != self.epoch)
            .await;
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        self.shared.change(|state| state.flights.gone(self.name));
    }
}

/// Carries bytes until one of the two ends, or a fault ends it. Neither side is told apart from an end of the other; only that a client is
/// gone is kept from a server which has a request to answer, so that there is a moment after which the request is known to be carried out.
pub(crate) async fn run(shared: Arc<Shared>, mut client: TcpStream, target: Option<SocketAddr>) {
    // Where nobody can tell, every connection is a client's.
    let link = socket_owner::held_here(&client) == Some(false);
    let (epoch, away, name) = shared.change(|state| {
        (
            state.epoch(link),
            state.away.is_some(),
            state.flights.connect(link),
        )
    });
    let line = Line {
        shared: &shared,
        name,
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
        () = line.cut(), if !away => None,
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
        let mut answers = std::pin::pin!(pump(&line, Way::Answers, server_read, client_write));
        tokio::select! {
            end = pump(&line, Way::Requests, client_read, server_write) => match end {
                End::Gone if shared.change(|state| state.flights.hang_up(name)) => tokio::select! {
                    end = tokio::time::timeout(LATE, &mut answers) => end.unwrap_or(End::Closed),
                    () = line.cut() => End::Reset,
                },
                end => end,
            },
            end = &mut answers => end,
            () = line.cut() => End::Reset,
        }
    };
    if let End::Reset = end {
        let _ = client.set_zero_linger();
    }
}

async fn pump(
    line: &Line<'_>,
    way: Way,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
) -> End {
    let mut buffer = vec![0; 1 << 16];
    let mut doomed = false;
    let mut first = way == Way::Requests && !line.link;
    loop {
        let read = from.read(&mut buffer);
        let read = if doomed {
            tokio::time::timeout(QUIET, read).await
        } else {
            Ok(read.await)
        };
        let bytes = match read {
            Ok(Ok(0) | Err(_)) => return End::Gone,
            Ok(Ok(n)) => &buffer[..n],
            // The answer is over.
            Err(_) => {
                line.shared
                    .change(|state| state.flights.doom_done(line.name));
                return End::Closed;
            }
        };
        // What belongs to a handshake comes first.
        let greeting = if line.link {
            0
        } else {
            line.tls().handshake(way, bytes)
        };
        let (greeting, words) = bytes.split_at(greeting);
        for (bytes, greets) in [(greeting, true), (words, false)] {
            if bytes.is_empty() {
                continue;
            }
            if !greets && way == Way::Requests && line.tls().lets_tickets_come() {
                line.let_tickets_come().await;
            }
            let (verdict, held) = {
                let mut state = line.shared.look();
                // A cut takes effect at once, not when this task hears of it.
                if state.epoch(line.link) != line.epoch {
                    return End::Reset;
                }
                if std::mem::take(&mut first)
                    && state
                        .monitoring
                        .is_some_and(|is_monitoring| is_monitoring(bytes))
                {
                    state.flights.ignore(line.name);
                }
                let flights = &mut state.flights;
                let verdict = if greets {
                    flights.greets(line.name, way)
                } else {
                    flights.passes(line.name, way, bytes.len())
                };
                (verdict, flights.fired())
            };
            if held {
                // Whoever waits for the fault hears of it, and the other connections that they are held.
                line.shared.change(|_| ());
            }
            match verdict {
                Verdict::Swallow => continue,
                Verdict::Pass => {}
                Verdict::PassAndDoom => doomed = true,
                Verdict::Cut { keep, reset } => {
                    line.shared
                        .change(|state| state.flights.doom_done(line.name));
                    if keep > 0 && to.write_all(&bytes[..keep]).await.is_ok() {
                        let _ = to.flush().await;
                    }
                    return if reset { End::Reset } else { End::Closed };
                }
            }
            line.shared.gate(line.name, line.link, way).await;
            if line.shared.look().epoch(line.link) != line.epoch {
                return End::Reset;
            }
            if to.write_all(bytes).await.is_err() {
                return End::Closed;
            }
        }
    }
}
