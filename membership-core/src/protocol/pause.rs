//! Notices that this process stood still: its timers are late. What was in flight then proves nothing, and after a long pause the table
//! decides whether I still exist before I do anything.

use std::time::Duration;

use super::io::LinkId;
use crate::{MonoTime, SiloAddress};

/// At most so many probes wait for the end of a suspension.
const MAX_WAITING: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Pause {
    /// Probes to answer when the read that ends the suspension has ended, well or not.
    waiting: Vec<(LinkId, SiloAddress, u64)>,
    /// That read has not ended yet.
    pub(crate) silent: bool,
    pub(crate) last_at: Option<MonoTime>,
}

/// How long a pause was, in the terms that matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    None,
    /// Longer than a probe timeout: probes in flight are void.
    Short,
    /// Longer than the failure window: others may have declared me dead.
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

    pub(crate) fn hold(&mut self, link: LinkId, from: SiloAddress, nonce: u64) {
        if self.waiting.len() < MAX_WAITING {
            self.waiting.push((link, from, nonce));
        }
    }

    pub(crate) fn release(&mut self) -> Vec<(LinkId, SiloAddress, u64)> {
        self.silent = false;
        std::mem::take(&mut self.waiting)
    }
}
