//! Spreads views: after a commit the delta goes out; whoever is behind asks. It hides behind `on_commit`, `on_message` and
//! `on_peer_version`, so that a better way to spread deltas can take its place.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use super::context::Ctx;
use super::gate::{self, Passage, Source};
use super::io::LinkId;
use super::message::{Header, Message};
use super::notice::Observation;
use crate::{ClusterView, Delta, MonoTime, SiloAddress, TableId};

/// One question for a delta is given so long before the next one, to whomever.
const ASK_PATIENCE: Duration = Duration::from_millis(500);
/// Forged senders must not fill the memory: at most so many are remembered at a time, the others wait.
const MAX_REMEMBERED: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Disseminator {
    asked: Option<(MonoTime, u64)>,
    /// Whom I told that it is Dead, and when.
    told: BTreeMap<SiloAddress, MonoTime>,
    /// To whom I sent everything, and when: whoever asks again and again must not keep me busy.
    served: BTreeMap<LinkId, MonoTime>,
    last_forced_read: Option<MonoTime>,
}

/// What a message calls for beyond itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Nothing,
    /// The view moved.
    Adopted,
    /// Only the table can tell.
    Read,
    /// It starts from a version that I do not have: ask for what is between.
    Ask,
}

impl Disseminator {
    /// A commit of mine landed: everybody else is told.
    pub(crate) fn on_commit(&mut self, ctx: &mut Ctx, before: u64) {
        if !ctx.config.enable_dissemination {
            return;
        }
        let Some(view) = &ctx.view else { return };
        let delta = view
            .delta_since(before)
            .unwrap_or_else(|| Delta::whole(view));
        let body = Arc::new(Message::Delta(Box::new(delta)));
        for silo in ctx.members.alive.clone() {
            if silo != ctx.me {
                ctx.send_to(silo, body.clone());
            }
        }
    }

    /// A message says which view its sender has.
    pub(crate) fn on_peer_version(&mut self, ctx: &mut Ctx, link: LinkId, header: &Header) -> Call {
        // Nothing is adopted any more. (Who is suspended asks all the same: it may be told that it is dead.)
        if ctx.table_changed() {
            return Call::Nothing;
        }
        let Some(view) = &ctx.view else {
            return Call::Nothing;
        };
        if header.table_id != Some(view.table_id()) || !ctx.config.enable_dissemination {
            return Call::Nothing;
        }
        let mine = view.version();
        if header.version == mine && header.digest != view.digest() {
            return self.read_once(ctx);
        }
        if header.version > mine {
            let now = ctx.mono();
            let waiting = self
                .asked
                .is_some_and(|(at, v)| now.since(at) < ASK_PATIENCE && v >= mine);
            if !waiting {
                self.asked = Some((now, mine));
                let table_id = Some(view.table_id());
                ctx.reply(
                    link,
                    header.from,
                    Message::AskDelta {
                        table_id,
                        have: mine,
                    },
                );
            }
        }
        Call::Nothing
    }

    pub(crate) fn on_ask(
        &mut self,
        ctx: &mut Ctx,
        link: LinkId,
        from: SiloAddress,
        table_id: Option<TableId>,
        have: u64,
    ) {
        let Some(view) = &ctx.view else { return };
        let delta = if table_id == Some(view.table_id()) {
            if have >= view.version() {
                return;
            }
            view.delta_since(have)
        } else {
            None
        };
        let delta = match delta {
            Some(delta) => delta,
            None => {
                let now = ctx.mono();
                self.served.retain(|_, at| now.since(*at) < ASK_PATIENCE);
                if self.served.len() >= MAX_REMEMBERED {
                    return;
                }
                let Entry::Vacant(served) = self.served.entry(link) else {
                    return;
                };
                served.insert(now);
                Delta::whole(view)
            }
        };
        ctx.reply(link, from, Message::Delta(Box::new(delta)));
    }

    /// A delta arrived. The view is in the context when it is adopted.
    pub(crate) fn on_delta(&mut self, ctx: &mut Ctx, delta: &Delta) -> Call {
        let Some(view) = &ctx.view else {
            return Call::Nothing;
        };
        if delta.to() <= view.version() && delta.table_id() == view.table_id() {
            return Call::Nothing;
        }
        if ctx.suspended || ctx.table_changed() {
            return Call::Nothing;
        }
        let resolved = match delta.resolve(Some(view.snapshot())) {
            Ok(snapshot) => snapshot,
            Err(crate::DeltaError::OtherVersion { .. }) => return Call::Ask,
            Err(_) => {
                ctx.observe(Observation::Dropped {
                    reason: "bad_delta",
                });
                return self.read_once(ctx);
            }
        };
        match gate::pass(ctx, resolved, Source::Message) {
            Passage::Adopted => Call::Adopted,
            Passage::Known => Call::Nothing,
            Passage::NeedsRead => self.read_once(ctx),
            Passage::Broken(_) | Passage::Nonsense => {
                ctx.observe(Observation::Dropped {
                    reason: "inconsistent_delta",
                });
                self.read_once(ctx)
            }
        }
    }

    /// Reads asked for by messages are limited to one per probe timeout, so that a liar cannot make the table hot.
    pub(crate) fn read_once(&mut self, ctx: &Ctx) -> Call {
        let now = ctx.mono();
        if self
            .last_forced_read
            .is_some_and(|t| now.since(t) < ctx.config.probe_timeout)
        {
            return Call::Nothing;
        }
        self.last_forced_read = Some(now);
        Call::Read
    }

    /// Somebody speaks whom I know as Dead: it should look at the table.
    pub(crate) fn on_dead_peer(&mut self, ctx: &mut Ctx, link: LinkId, from: SiloAddress) {
        let now = ctx.mono();
        let patience = ctx.config.probe_timeout;
        self.told.retain(|_, at| now.since(*at) < patience);
        if self.told.len() < MAX_REMEMBERED
            && let Entry::Vacant(told) = self.told.entry(from)
        {
            told.insert(now);
            let version = ctx.version();
            ctx.reply(link, from, Message::YouAreDead { version });
        }
    }

    /// My last message, one to each peer.
    pub(crate) fn farewell(&mut self, ctx: &mut Ctx, version: u64, before: Option<&ClusterView>) {
        let delta = before
            .and_then(|b| ctx.view.as_ref().and_then(|v| v.delta_since(b.version())))
            .map(Box::new);
        let body = Arc::new(Message::Farewell { version, delta });
        for silo in ctx.members.alive.clone() {
            if silo != ctx.me {
                ctx.send_to(silo, body.clone());
            }
        }
    }
}
