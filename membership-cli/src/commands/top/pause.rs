//! Ctrl-Z and `fg`: a program on the full screen gives the terminal back before it stops, and takes it again when it goes on.

use std::io;

use rustix::process::{Signal, getpid, getsid, kill_current_process_group};
use tokio::signal::unix::{self, SignalKind, signal};

/// What a shell did with the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// It is asked to stop for now.
    Asked,
    /// It goes on, perhaps after a stop that nobody asked it for.
    Over,
}

/// The signals of job control.
pub(super) struct Pauses {
    asked: unix::Signal,
    over: unix::Signal,
}

impl Pauses {
    /// Listens from now on: from then the program stops only by [`stop`]. Needs a tokio runtime.
    pub fn listen() -> io::Result<Self> {
        let listen = |wanted: Signal| signal(SignalKind::from_raw(wanted.as_raw()));
        Ok(Self {
            asked: listen(Signal::TSTP)?,
            over: listen(Signal::CONT)?,
        })
    }

    /// The next one. Cancel safe.
    pub async fn next(&mut self) -> Pause {
        tokio::select! {
            _ = self.asked.recv() => Pause::Asked,
            _ = self.over.recv() => Pause::Over,
        }
    }
}

/// Whether a shell could let it go on: a program that the terminal itself has started would stand still for ever.
pub(super) fn can_stop() -> bool {
    getsid(None).is_ok_and(|session| session != getpid())
}

/// Stands still until the shell lets it go on, with whatever the shell started together with it.
pub(super) fn stop() -> io::Result<()> {
    Ok(kill_current_process_group(Signal::STOP)?)
}
