//! Whether a silo whose heartbeat stands still may run all the same: in a large cluster most write rarely.

use super::address::long_enough;
use crate::protocol::context::Ctx;
use crate::{Heartbeats, MonoTime, SiloAddress};

/// What a newcomer has seen while it watches the rows at its address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Quiet {
    began: Option<MonoTime>,
    /// The leader, its heartbeat, and when both were first read.
    leader: Option<(SiloAddress, u64, MonoTime)>,
    /// A leader has written: the cluster has a pulse.
    beats: bool,
    /// Since when all watched silos are accused, so that those that run write more often.
    accused: Option<MonoTime>,
}

impl Quiet {
    /// Takes what a read has shown. Returns whether the watched silos may run although their heartbeats
    /// have stood still: the cluster has a pulse, nobody has accused them for long enough, and
    /// the longest time between two heartbeats is not over.
    pub(super) fn look<'a>(
        &mut self,
        ctx: &Ctx,
        sent: MonoTime,
        beats: &Heartbeats,
        mut watched: impl Iterator<Item = &'a SiloAddress>,
    ) -> bool {
        let began = *self.began.get_or_insert(sent);
        if let Some(leader) = ctx.leader() {
            let counter = beats.counter(&leader);
            match self.leader {
                Some((silo, before, _)) if silo == leader => self.beats |= counter > before,
                _ => self.leader = Some((leader, counter, sent)),
            }
        }
        if watched.all(|silo| ctx.is_accused(silo)) {
            self.accused.get_or_insert(sent);
        } else {
            self.accused = None;
        }
        let enough = long_enough(ctx);
        let is_over = |since: MonoTime| sent.since(since) >= enough;
        let lives = self.beats || self.leader.is_some_and(|(.., since)| !is_over(since));
        let longest = ctx.quiet_period() + enough;
        ctx.has_pulse()
            && lives
            && !self.accused.is_some_and(is_over)
            && sent.since(began) < longest
    }
}
