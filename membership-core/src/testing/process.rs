//! One process of the virtual world: a machine, its clocks, and what the operating system knows of it.

use std::net::SocketAddr;
use std::time::Duration;

use super::circumstances::{ProcessId, VirtualTime, wall};
use super::machine::Machine;
use crate::protocol::{Input, Notice, Termination};
use crate::{ClusterView, MonoTime, Now};

/// Every process's monotonic clock begins anywhere: nothing may compare those of two.
pub(super) const CLOCK_BEGIN: Duration = Duration::from_secs(1_000);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Running {
    Yes,
    Killed,
    Stopped,
}

pub(super) struct Process {
    pub machine: Box<dyn Machine>,
    pub running: Running,
    pub place: usize,
    pub endpoint: SocketAddr,
    /// What its monotonic clock shows when the world begins.
    pub mono_begin: Duration,
    pub skew_ms: i64,
    pub paused_until: Option<VirtualTime>,
    /// What arrived while it was paused, with the sender of messages.
    pub backlog: Vec<(Option<ProcessId>, Input)>,
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
        let mono = now + self.mono_begin;
        Now { mono: MonoTime::from_nanos(u64::try_from(mono.as_nanos()).unwrap_or(u64::MAX)), wall: wall(now, self.skew_ms) }
    }

    /// The virtual time of one of its monotonic times.
    pub(super) fn when(&self, mono: MonoTime) -> VirtualTime {
        Duration::from_nanos(mono.as_nanos()).saturating_sub(self.mono_begin)
    }

    pub(super) fn is_running(&self) -> bool {
        self.running == Running::Yes
    }
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process").field("endpoint", &self.endpoint).field("running", &self.running).finish_non_exhaustive()
    }
}
