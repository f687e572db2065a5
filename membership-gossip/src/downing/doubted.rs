//! What does not change but for those that are connected indirectly.
//!
//! A member whose links to many others are broken finds that out link by link, and what it says of others
//! changes for as long. Nobody else has to wait for that, let alone to end: who is to blame is known by
//! then, and all others reach each other.

use std::collections::BTreeSet;

use membership_core::{MonoTime, SiloAddress};

use super::Situation;
use super::situation::current_flags;
use super::timing::Watched;
use crate::convergence::Scope;
use crate::state::Gossip;

/// The indirectly connected, as they were when all that are reached had last seen the state: while news
/// is on its way nobody knows who they are.
#[derive(Clone, Debug, Default)]
pub(super) struct Doubted {
    indirect: BTreeSet<SiloAddress>,
    /// The situation at that time, until something changes that others than those say.
    situation: Option<Situation>,
    watched: Watched,
    changed_at: MonoTime,
}

impl Doubted {
    pub(super) fn look(&mut self, now: MonoTime, gossip: &Gossip, scope: &Scope) {
        let state = gossip.state();
        let stays = |m: &SiloAddress| state.member(m).is_some_and(|m| m.status().is_present());
        self.indirect.retain(stays);
        let flags = current_flags(gossip, scope);
        if self.indirect.is_empty() && !flags.iter().any(|(_, s)| gossip.has_seen(s)) {
            *self = Self::default();
            return;
        }
        let is_known = self.is_known(&flags, gossip, scope);
        let situation = is_known.then(|| Situation::of(gossip, scope));
        if let Some(situation) = &situation {
            self.indirect.clone_from(&situation.indirect);
        }
        // They stand for all that they say, and for all that is said of them.
        let indirect = &self.indirect;
        let mut watched = Watched::of(gossip, scope, false, |observer, subject| {
            !indirect.contains(observer) && !indirect.contains(subject)
        });
        watched.add(indirect);
        if !watched.counts_as(&self.watched) {
            self.changed_at = now;
            self.situation = None;
        }
        self.watched = watched;
        self.situation = situation.or(self.situation.take());
    }

    /// Whether all have seen the state but those that somebody else does not reach.
    fn is_known(
        &self,
        flags: &[(SiloAddress, SiloAddress)],
        gossip: &Gossip,
        scope: &Scope,
    ) -> bool {
        let believed = flags.iter().filter(|(o, _)| !self.indirect.contains(o));
        let flagged: BTreeSet<_> = believed.map(|(_, subject)| *subject).collect();
        let blocking = scope.blocking(gossip);
        let mut unseen = blocking.unseen.iter();
        unseen.all(|m| flagged.contains(m) && !self.indirect.contains(m))
    }

    /// This process was paused: what it knew is old.
    pub(super) const fn start_over(&mut self, now: MonoTime) {
        self.changed_at = now;
    }

    /// Who is connected indirectly, and since when nothing has changed but by what they say.
    pub(super) const fn indirect(&self) -> (&BTreeSet<SiloAddress>, MonoTime) {
        (&self.indirect, self.changed_at)
    }

    /// The situation when this was last known, if nothing has changed since but by what those say.
    pub(super) const fn situation(&self) -> Option<&Situation> {
        self.situation.as_ref()
    }
}
