//! One connection through a proxy.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::QUIET;
use super::fault::Way;
use super::flights::Verdict;
use super::shared::Shared;

/// How a connection ends for its client.
enum End {
    Closed,
    Reset,
}

/// In the bookkeeping for as long as it lives.
struct Line<'s> {
    shared: &'s Shared,
    name: u64,
    epoch: u64,
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        self.shared.change(|state| state.flights.gone(self.name));
    }
}

/// Carries bytes until one of the two ends, or a fault ends it. Neither side is told apart from an end of the other.
pub(super) async fn run(shared: Arc<Shared>, mut client: TcpStream, target: Option<SocketAddr>) {
    let (epoch, away, name) = shared.change(|state| (state.epoch, state.away.is_some(), state.flights.connect()));
    let line = Line { shared: &shared, name, epoch };
    let cut = || async { shared.until(|state| state.epoch != epoch).await };
    let server = async {
        match target {
            Some(target) => TcpStream::connect(target).await.ok(),
            None => None,
        }
    };
    let server = tokio::select! {
        server = server, if !away => server,
        () = cut(), if !away => None,
        else => None,
    };
    let Some(mut server) = server else {
        let _ = client.set_zero_linger();
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let end = {
        let ((client_read, client_write), (server_read, server_write)) = (client.split(), server.split());
        tokio::select! {
            end = pump(&line, Way::Requests, client_read, server_write) => end,
            end = pump(&line, Way::Answers, server_read, client_write) => end,
            () = cut() => End::Reset,
        }
    };
    if let End::Reset = end {
        let _ = client.set_zero_linger();
    }
}

async fn pump(line: &Line<'_>, way: Way, mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) -> End {
    let mut buffer = vec![0; 1 << 16];
    let mut doomed = false;
    loop {
        let read = from.read(&mut buffer);
        let read = if doomed { tokio::time::timeout(QUIET, read).await } else { Ok(read.await) };
        let bytes = match read {
            Ok(Ok(0) | Err(_)) => return End::Closed,
            Ok(Ok(n)) => &buffer[..n],
            // The answer is over.
            Err(_) => {
                line.shared.change(|state| state.flights.doom_done(line.name));
                return End::Closed;
            }
        };
        let (verdict, held) = {
            let mut state = line.shared.look();
            // A cut takes effect at once, not when this task hears of it.
            if state.epoch != line.epoch {
                return End::Reset;
            }
            let verdict = state.flights.passes(line.name, way, bytes.len());
            (verdict, state.flights.fired())
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
                line.shared.change(|state| state.flights.doom_done(line.name));
                if keep > 0 && to.write_all(&bytes[..keep]).await.is_ok() {
                    let _ = to.flush().await;
                }
                return if reset { End::Reset } else { End::Closed };
            }
        }
        line.shared.gate(way).await;
        if line.shared.look().epoch != line.epoch {
            return End::Reset;
        }
        if to.write_all(bytes).await.is_err() {
            return End::Closed;
        }
    }
}
