//! What can be seen of the writer from outside: whom this silo would ask to write, and what waits.

use std::collections::BTreeSet;

use super::{Exchange, Writer};
use crate::SiloAddress;
use crate::protocol::context::Ctx;
use crate::protocol::machine::Protocol;

/// Who writes the changes of a silo, and how many wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriterState {
    /// The silo that this one would ask now to write its join, its activation or its leave: the scribe. It
    /// is this silo, if it would write them. `None` without the setting
    /// [`scribe`](crate::Config::scribe), and before there is a view.
    pub scribe: Option<SiloAddress>,
    /// Number of changes that wait for a commit of this silo, or are in one whose result is not known:
    /// its own and those that others asked it to write.
    pub waiting: usize,
    /// The silo that was asked to write a change of this one, until the row of this one shows the change.
    pub asked: Option<SiloAddress>,
}

impl WriterState {
    /// Nothing waits, and there is no view yet.
    pub const IDLE: Self = Self {
        scribe: None,
        waiting: 0,
        asked: None,
    };
}

impl Writer {
    /// Whom this silo would ask now, if it does not ask those that are `suspected`.
    pub(crate) fn state(&self, ctx: &Ctx, suspected: &BTreeSet<SiloAddress>) -> WriterState {
        let is_used = ctx.variant.scribe && ctx.base.is_some() && ctx.me.epoch() != 0;
        let scribe = is_used.then(|| {
            // A silo that writes for others writes its own changes, too.
            let other = (!self.desk.is_open()).then(|| self.courier.scribe(ctx, suspected));
            other.flatten().unwrap_or(ctx.me)
        });
        let under_way = match &self.exchange {
            Some(Exchange::Commit { commit, .. }) => Some(commit),
            _ => None,
        };
        let sent = under_way.into_iter().chain(&self.unsettled);
        let sent: usize = sent.map(|commit| commit.batch.len()).sum();
        WriterState {
            scribe,
            waiting: self.queue.len() + self.desk.looked_at() + sent,
            asked: self.courier.asked(),
        }
    }
}

impl Protocol {
    /// Who writes the changes of this silo, and how many wait.
    #[must_use]
    pub fn writer_state(&self) -> WriterState {
        self.writer.state(&self.ctx, &self.suspected())
    }
}
