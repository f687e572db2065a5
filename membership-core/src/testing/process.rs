//! One process of the virtual world: a machine, its clocks, and what the operating system knows of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::circumstances::{ProcessId, VirtualTime, wall};
use super::clock::{Monotonic, Skew};
use super::machine::Machine;
use super::store::Call;
use crate::protocol::{CallId, Destination, Header, Input, Message, Notice, Termination};
use crate::{ClusterView, MonoTime, Now};

/// Every process's monotonic clock begins anywhere: nothing may compare those of two.
pub(super) const CLOCK_BEGIN: Duration = Duration::from_secs(1_000);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Running {
    Yes,
    Killed,
    Stopped,
}

/// What a process wanted to get out while it was held.
pub(super) enum Held {
    Message {
        to: Destination,
        header: Header,
        body: Arc<Message>,
    },
    Call {
        call: CallId,
        what: Call,
    },
}

/// How much a process has sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    pub messages: u64,
    pub bytes: u64,
}

pub(super) struct Process {
    pub machine: Box<dyn Machine>,
    pub running: Running,
    pub place: usize,
    pub endpoint: SocketAddr,
    pub mono: Monotonic,
    pub skew: Skew,
    pub paused_until: Option<VirtualTime>,
    /// Whether only its protocol does not run, while other threads of it do.
    pub hung: bool,
    /// What arrived while it was paused, with the sender of messages.
    pub backlog: Vec<(Option<ProcessId>, Input)>,
    pub held_until: Option<VirtualTime>,
    /// What it wanted to get out while it was held.
    pub outbox: Vec<Held>,
    /// What arrived while it was held.
    pub inbox: Vec<(Option<ProcessId>, Input)>,
    /// Its table calls that it has no answer to, and until when it waits for one.
    pub asked: Vec<(CallId, VirtualTime)>,
    pub sent: Sent,
    /// For when a wake-up is planned.
    pub wake_at: Option<VirtualTime>,
    pub view: Option<ClusterView>,
    pub notices: Vec<(VirtualTime, Notice)>,
    pub termination: Option<Termination>,
    pub leaving: bool,
    pub drains_for: Duration,
    /// Inputs taken at one moment: a machine that spins is stopped.
    pub busy: (VirtualTime, u32),
}

impl Process {
    pub(super) fn clocks(&self, now: VirtualTime) -> Now {
        let mono = self.mono.shows(now);
        Now {
            mono: MonoTime::from_nanos(u64::try_from(mono.as_nanos()).unwrap_or(u64::MAX)),
            wall: wall(now, self.skew.at(now)),
        }
    }

    /// The virtual time of one of its monotonic times.
    pub(super) fn when(&self, mono: MonoTime) -> VirtualTime {
        self.mono.when(Duration::from_nanos(mono.as_nanos()))
    }

    /// It has the answer to a call, or gives up waiting for it. Says whether it still waited: each call is answered once.
    pub(super) fn close(&mut self, call: CallId) -> bool {
        let open = self.asked.iter().position(|(c, _)| *c == call);
        open.map(|i| self.asked.swap_remove(i)).is_some()
    }

    pub(super) fn is_running(&self) -> bool {
        self.running == Running::Yes
    }
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process")
            .field("endpoint", &self.endpoint)
            .field("running", &self.running)
            .finish_non_exhaustive()
    }
}
