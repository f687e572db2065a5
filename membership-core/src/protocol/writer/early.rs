//! Activations of silos whose rows this silo has not confirmed yet: a scribe may be a commit behind
//! those that ask it. They wait for its view, and are then taken like all others, as the table has
//! them. If they were sent away, each would ask others that are as far behind, and then write itself.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Writer;
use super::desk::Asked;
use crate::protocol::context::Ctx;
use crate::protocol::forward::Standing;
use crate::{InstanceId, IntentId, MonoTime, SiloAddress};

/// How long an activation waits for the row of its silo.
const WAIT: Duration = Duration::from_secs(1);
/// How many may wait; more are sent elsewhere.
const MOST: usize = 1024;

#[derive(Debug)]
struct Waiting {
    id: IntentId,
    asked: Asked,
    instance: InstanceId,
    contacted: Vec<(SiloAddress, u64)>,
    until: MonoTime,
}

#[derive(Debug, Default)]
pub(super) struct Early {
    waiting: BTreeMap<SiloAddress, Waiting>,
    /// The version in which they were last looked for.
    seen: u64,
}

impl Early {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn has(&self, id: IntentId) -> bool {
        self.waiting.values().any(|w| w.id == id)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (IntentId, Asked)> {
        self.waiting.values().map(|w| (w.id, w.asked))
    }

    /// Forgets all; returns who waited.
    pub(super) fn clear(&mut self) -> Vec<(IntentId, Asked)> {
        let waited = self.all().collect();
        self.waiting.clear();
        waited
    }

    /// Forgets those that have waited for too long, and returns them.
    pub(super) fn late(&mut self, now: MonoTime) -> Vec<(IntentId, Asked)> {
        let late = |w: &Waiting| now >= w.until;
        let all = self.waiting.values().filter(|w| late(w));
        let all = all.map(|w| (w.id, w.asked)).collect();
        self.waiting.retain(|_, w| !late(w));
        all
    }
}

impl Writer {
    /// Keeps the activation of a silo that is not in the confirmed view. Returns false if that is no
    /// reason to wait.
    pub(super) fn hold(
        &mut self,
        ctx: &Ctx,
        (id, asked): (IntentId, Asked),
        instance: InstanceId,
        contacted: &[(SiloAddress, u64)],
    ) -> bool {
        let (by, base) = (asked.by, ctx.base.as_ref());
        let is_known = base.is_none_or(|view| view.status(&by).is_some());
        let early = &mut self.desk.early;
        if is_known || early.waiting.len() >= MOST {
            return false;
        }
        // One for each process, as one has one address.
        if early.waiting.values().any(|w| w.instance == instance) {
            return false;
        }
        let waiting = Waiting {
            id,
            asked,
            instance,
            contacted: contacted.to_vec(),
            until: ctx.mono() + ctx.patience(WAIT),
        };
        early.seen = ctx.base_version();
        early.waiting.insert(by, waiting);
        if ctx.is_announced() && ctx.kept.shown.is_none() {
            self.want_row();
        }
        true
    }

    /// Takes those whose rows this silo has confirmed since.
    pub(crate) fn take_early(&mut self, ctx: &mut Ctx) {
        let version = ctx.base_version();
        if self.desk.early.waiting.is_empty() || self.desk.early.seen == version {
            return;
        }
        self.desk.early.seen = version;
        let all = std::mem::take(&mut self.desk.early.waiting);
        for (silo, waiting) in all {
            let (id, asked) = (waiting.id, waiting.asked);
            if !ctx.is_member(&silo, waiting.instance) {
                self.desk.early.waiting.insert(silo, waiting);
            } else if !self.prove(ctx, (id, asked), &waiting.contacted) {
                self.say(ctx, asked, id, Standing::Elsewhere);
            }
        }
    }
}
