//! Detects that this process was paused: its timers are late. Probes and calls that were in flight
//! then prove nothing. After a long pause, the silo reads the table before anything else, because
//! it may have been declared dead. If that takes long, it answers probes meanwhile, and nothing else.

use std::time::Duration;

use super::io::LinkId;
use crate::{MonoTime, SiloAddress};

/// Maximum number of probes that wait for the end of a silence.
const MAX_WAITING: usize = 256;

/// Maximum number of them that came by one connection.
const PROBES_OF_A_LINK: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct Pause {
    /// Probes to answer when the silence ends.
    waiting: Vec<(LinkId, SiloAddress, u64)>,
    /// This silo answers no probe until then, if that read has not ended before.
    silent_until: Option<MonoTime>,
    pub(crate) last_at: Option<MonoTime>,
}

/// The length of a pause in relation to the timeouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    None,
    /// Longer than a probe timeout: probes in flight are void.
    Short,
    /// Longer than the failure window: other silos may have declared this one dead.
    Long,
}

impl Pause {
    pub(crate) fn judge(
        late: Duration,
        probe_timeout: Duration,
        failure_window: Duration,
    ) -> Length {
        if late > failure_window {
            Length::Long
        } else if late > probe_timeout {
            Length::Short
        } else {
            Length::None
        }
    }

    /// Answers no probe until `until`, or until the read has ended.
    pub(crate) fn be_silent(&mut self, until: MonoTime) {
        self.silent_until = Some(until);
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.silent_until.is_some()
    }

    /// Whether the read takes too long. A silo that says nothing until a slow table has answered is
    /// voted out: a few short stalls in that time are a failure window. Invariant P10.
    pub(crate) fn was_silent_for_long(&self, now: MonoTime) -> bool {
        self.silent_until.is_some_and(|until| now >= until)
    }

    pub(crate) fn hold(&mut self, link: LinkId, from: SiloAddress, nonce: u64) {
        // A probe that is sent again replaces the one before it: nobody fills the list alone.
        let older = self.waiting.iter().filter(|(l, ..)| *l == link).count();
        if older >= PROBES_OF_A_LINK {
            let at = self.waiting.iter().position(|(l, ..)| *l == link);
            at.map(|at| self.waiting.remove(at));
        }
        if self.waiting.len() < MAX_WAITING {
            self.waiting.push((link, from, nonce));
        }
    }

    pub(crate) fn release(&mut self) -> Vec<(LinkId, SiloAddress, u64)> {
        self.silent_until = None;
        std::mem::take(&mut self.waiting)
    }
}
