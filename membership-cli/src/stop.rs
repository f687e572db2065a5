//! Requests to stop a long-running command: signals, and the end of standard input.

use std::io::Read;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

/// Signals within this time are one request: `timeout` and process managers send one to the process
/// and one to its group, a terminal that is closed sends several. Nobody has seen an effect of the
/// first one until it is over.
const AT_ONCE: Duration = Duration::from_millis(10);

/// Why to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// SIGTERM, SIGINT or SIGHUP.
    Signal,
    /// Standard input was closed: the parent process has ended.
    Orphaned,
}

/// The requests to stop, in order. A second one asks for a faster stop.
pub(crate) struct Stops {
    requests: mpsc::UnboundedReceiver<Stop>,
    /// A request that was taken and not given yet, and when to give it.
    taken: Option<(Stop, Instant)>,
}

impl Stops {
    /// Listens to signals from now on, and to the end of standard input if `stdin_too`. Needs a
    /// tokio runtime.
    pub fn listen(stdin_too: bool) -> std::io::Result<Self> {
        let (sender, receiver) = mpsc::unbounded_channel();
        signals(&sender)?;
        if stdin_too {
            // A thread of its own: a read cannot be cancelled, and the process does not wait for
            // it.
            std::thread::Builder::new()
                .name("stdin".to_owned())
                .spawn(move || {
                    let mut buffer = [0; 256];
                    let mut stdin = std::io::stdin().lock();
                    while stdin.read(&mut buffer).is_ok_and(|n| n > 0) {}
                    let _ = sender.send(Stop::Orphaned);
                })?;
        }
        Ok(Self {
            requests: receiver,
            taken: None,
        })
    }

    /// The next request. Cancel safe.
    pub async fn next(&mut self) -> Stop {
        let (stop, at) = match self.taken {
            Some(taken) => taken,
            None => {
                let Some(stop) = self.requests.recv().await else {
                    return std::future::pending().await;
                };
                *self.taken.insert((stop, Instant::now() + AT_ONCE))
            }
        };
        if stop == Stop::Signal {
            tokio::time::sleep_until(at).await;
            while self.requests.try_recv().is_ok() {}
        }
        self.taken = None;
        stop
    }
}

#[cfg(unix)]
fn signals(sender: &mpsc::UnboundedSender<Stop>) -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    for kind in [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
    ] {
        // Under `nohup` the silo outlives the terminal session.
        if kind == SignalKind::hangup() && hangups_are_ignored() {
            continue;
        }
        let mut stream = signal(kind)?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() && sender.send(Stop::Signal).is_ok() {}
        });
    }
    Ok(())
}

/// Whether this process was started with SIGHUP ignored, if the kernel reports that.
#[cfg(unix)]
fn hangups_are_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 == 1)
}

#[cfg(not(unix))]
fn signals(sender: &mpsc::UnboundedSender<Stop>) -> std::io::Result<()> {
    let sender = sender.clone();
    tokio::spawn(async move {
        while tokio::signal::ctrl_c().await.is_ok() && sender.send(Stop::Signal).is_ok() {}
    });
    Ok(())
}
