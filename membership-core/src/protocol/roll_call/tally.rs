//! What the silos that answer a call say of one suspect, and since when it has been silent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::protocol::message::Consent;
use crate::{MonoTime, SiloAddress};

/// Of how many silos a message must have been left unanswered for a failure window.
const WITNESSES: usize = 2;

/// What one silo said of a suspect.
#[derive(Debug, Clone, Copy)]
pub(super) struct Failing {
    pub(super) at: MonoTime,
    /// When the first message was sent that the suspect has left unanswered since it last answered
    /// this silo.
    pub(super) since: MonoTime,
    /// When it last answered this silo.
    pub(super) heard: Option<MonoTime>,
    pub(super) refused: bool,
    pub(super) consent: Option<Consent>,
}

#[derive(Debug)]
pub(super) struct Tally {
    /// When it became a suspect of this call.
    pub(super) added: MonoTime,
    /// When it became a suspect: of this call, or if it writes no heartbeats, of the first one since
    /// it last answered this silo.
    pub(super) asked: MonoTime,
    /// When it last answered anybody who says that it failed.
    pub(super) heard: Option<MonoTime>,
    /// When the first message was sent, by whomever, that it has left unanswered since.
    pub(super) silent: MonoTime,
    pub(super) failed: BTreeMap<SiloAddress, Failing>,
    /// What each of them said first: since when it has been silent, and when it last answered.
    pub(super) first: BTreeMap<SiloAddress, (MonoTime, Option<MonoTime>)>,
    pub(super) reached: BTreeSet<SiloAddress>,
    pub(super) unknown: BTreeSet<SiloAddress>,
    /// It has been Joining for too long: its own answers are no evidence in its favour.
    pub(super) stuck: bool,
}

impl Tally {
    pub(super) fn new(added: MonoTime, since: MonoTime) -> Self {
        Self {
            added,
            asked: added,
            heard: None,
            silent: since,
            failed: BTreeMap::new(),
            first: BTreeMap::new(),
            reached: BTreeSet::new(),
            unknown: BTreeSet::new(),
            stuck: false,
        }
    }

    /// Whether a silo has said that it reaches it, or that it fails to.
    pub(super) fn has_word_of(&self, silo: &SiloAddress) -> bool {
        self.failed.contains_key(silo) || self.reached.contains(silo)
    }

    /// Since when it has been silent towards everybody who answered.
    pub(super) const fn silent_since(&self) -> MonoTime {
        self.silent
    }

    /// Finds the first message after its last answer. It counts only if it was sent by a silo that
    /// the suspect had answered within `recently` before, and not while it still answered others: from
    /// another silo it may never have arrived. That link may have been cut meanwhile, so the first
    /// messages of two silos count, if there are two. If there are too few, it is the call, or what
    /// came after it.
    pub(super) fn follow(
        &mut self,
        silos: usize,
        recently: Duration,
        timeout: Duration,
        sampled: bool,
    ) {
        let after = |sent: &MonoTime| self.heard.is_none_or(|heard| *sent >= heard);
        // An answer to another silo may have been on its way. In a large sample, some always answer.
        let cut = |sent: MonoTime| !sampled && !after(&(sent + timeout / 8));
        let mut sent: Vec<MonoTime> = self
            .failed
            .values()
            .filter(|f| f.heard.is_some_and(|h| f.since.since(h) <= recently))
            .filter(|f| !cut(f.since))
            // The probe after a missed one follows at once.
            .filter_map(|f| [f.since, f.since + timeout].into_iter().find(after))
            .collect();
        sent.sort_unstable();
        let witness = WITNESSES.min(silos).saturating_sub(1);
        // The call may have begun while it still answered.
        let later = sent.last().copied().max(self.heard);
        let call = later.map_or(self.asked, |at| at.max(self.asked));
        self.silent = sent.get(witness).copied().unwrap_or(call);
    }
}
