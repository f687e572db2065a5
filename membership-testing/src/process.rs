//! One simulated process: its state machine, its clocks, and its queues.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Monotonic, Skew, VirtualTime, wall};
use crate::connections::Connections;
use crate::faults::Starving;
use crate::ground_truth::ProcessId;
use crate::machine::Machine;
use crate::table_call::TableCall;
use membership_core::protocol::{CallId, Destination, Header, Input, Message, Notice, Termination};
use membership_core::{ClusterView, MonoTime, Now};

/// Monotonic clocks start at random times from here, because no code may compare those of two
/// processes.
pub(super) const CLOCK_BEGIN: Duration = Duration::from_secs(1_000);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Running {
    Yes,
    Killed,
    Stopped,
    /// Its machine ended with it.
    MachineCrashed,
}

/// What a process tried to send while it was held.
pub(super) enum HeldOutput {
    Message {
        to: Destination,
        header: Header,
        body: Arc<Message>,
    },
    TableCall {
        call: CallId,
        what: TableCall,
    },
}

/// What a process has sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    pub messages: u64,
    pub bytes: u64,
}

pub(super) struct Process {
    pub machine: Box<dyn Machine>,
    pub running: Running,
    pub host: usize,
    pub endpoint: SocketAddr,
    pub mono: Monotonic,
    pub skew: Skew,
    pub paused_until: Option<VirtualTime>,
    /// Whether only its protocol is paused, while its other threads run.
    pub hung: bool,
    /// Inputs that arrived while it was paused, with the sender of each message.
    pub backlog: Vec<(Option<ProcessId>, Input)>,
    /// How long it stalls once more, after this pause.
    pub stalls_again: Option<Duration>,
    /// Its executor starves.
    pub starving: Option<Starving>,
    pub held_until: Option<VirtualTime>,
    /// What it tried to send while it was held.
    pub outbox: Vec<HeldOutput>,
    /// Inputs that arrived while it was held.
    pub inbox: Vec<(Option<ProcessId>, Input)>,
    /// Table calls without an answer yet, with their deadlines.
    pub asked: Vec<(CallId, VirtualTime)>,
    pub sent: Sent,
    /// Its connections.
    pub connections: Connections,
    /// The time of the scheduled wake-up.
    pub wake_at: Option<VirtualTime>,
    pub view: Option<ClusterView>,
    pub notices: Vec<(VirtualTime, Notice)>,
    pub termination: Option<Termination>,
    pub leaving: bool,
    pub drains_for: Duration,
    /// Inputs handled at one moment, to detect a machine in a loop.
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

    /// The virtual time at which its monotonic clock shows `mono`.
    pub(super) fn when(&self, mono: MonoTime) -> VirtualTime {
        self.mono.when(Duration::from_nanos(mono.as_nanos()))
    }

    /// Closes a call that was answered or timed out. Returns whether it was open: each call is
    /// answered once.
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
