//! Spreads views: after a commit the delta is sent to all peers, and a silo with an older view asks
//! for one. The interface is `on_commit`, `on_message` and `on_peer_version`, so that another
//! dissemination protocol can replace it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use super::context::Ctx;
use super::flood;
use super::gate::{self, Hearing, Witness};
use super::io::LinkId;
use super::message::{Header, Message};
use super::observation::Observation;
use crate::{ClusterView, Delta, MonoTime, SiloAddress, Snapshot, TableId};

/// Minimum time between two requests for a delta, to any peers.
const ASK_PATIENCE: Duration = Duration::from_millis(500);
/// How long after a request without an answer the table is read instead of asking again.
const ASKED_IN_VAIN: Duration = Duration::from_secs(5);
/// How long a question is held that this silo cannot answer yet.
const HELD: Duration = Duration::from_secs(1);
/// Maximum number of remembered peers; further ones wait. Forged senders must not exhaust the
/// memory.
const MAX_REMEMBERED: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Disseminator {
    asked: Option<(MonoTime, u64)>,
    /// Dead silos that were sent `YouAreDead`, and when.
    told: BTreeMap<SiloAddress, MonoTime>,
    /// Links that were sent the whole view, and when. This limits the work for repeated requests.
    served: BTreeMap<LinkId, MonoTime>,
    /// The same for those that are no members yet.
    newcomers: BTreeMap<LinkId, MonoTime>,
    /// Members that asked for a version that this silo does not have, where one silo writes for many: by
    /// which link, what they have, and when.
    held: BTreeMap<SiloAddress, (LinkId, u64, MonoTime)>,
    last_forced_read: Option<MonoTime>,
    /// The last delta that was asked for: many ask for the same one.
    told_last: Option<Arc<Message>>,
}

/// Whether this is the delta from that version to this view.
fn is_delta(told: &Message, have: u64, view: &ClusterView) -> bool {
    let Message::Delta(delta) = told else {
        return false;
    };
    let snapshot = view.snapshot();
    delta.from == Some(have)
        && delta.token == snapshot.token
        && delta.digest == snapshot.rows.digest()
        && Arc::ptr_eq(&delta.version_row, &snapshot.version_row)
}

/// What the machine must do after a message, besides its direct handling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Nothing,
    /// The view moved.
    Adopted,
    /// The delta leads to what the table has shown.
    Shown(Box<Snapshot>),
    /// A read of the table is needed.
    Read,
    /// A look at the table is needed; its version row may be enough.
    Look,
    /// Somebody whom the table does not name may be right: a read is due, at a limited rate.
    Hint,
    /// A read of all rows is needed, also of those that seem known.
    ReadAll,
    /// The sender has news that this silo has not heard yet.
    Behind,
    /// The table has to say whether the news is true; whether it may be asked now.
    Doubt(bool),
    /// The delta starts from a version that this silo does not have: ask for a larger one.
    Ask,
}

impl Disseminator {
    /// Sends the delta of this silo's commit to all other silos.
    pub(crate) fn on_commit(&mut self, ctx: &mut Ctx, before: Option<&ClusterView>) {
        if !ctx.config.enable_dissemination {
            return;
        }
        // Only what the table has acknowledged is told to others.
        let Some(view) = &ctx.base else { return };
        let since = before.map_or(0, ClusterView::version);
        let delta = view.delta_since(since).unwrap_or_else(|| match before {
            // One commit may change more rows than the version row lists.
            Some(before) if ctx.variant.scribe => {
                Delta::between(before.snapshot(), view.snapshot())
            }
            _ => Delta::whole(view),
        });
        if flood::is_due(ctx) && delta.from.is_some() {
            return flood::begin(ctx, delta);
        }
        let body = Arc::new(Message::Delta(Box::new(delta)));
        for silo in ctx.members.alive.clone() {
            if silo != ctx.me {
                ctx.send_to(silo, body.clone());
            }
        }
    }

    /// Handles the view version in the header of a message.
    pub(crate) fn on_peer_version(&mut self, ctx: &mut Ctx, link: LinkId, header: &Header) -> Call {
        // No view is adopted any more. (A suspended silo still asks: the answer may be that it is
        // Dead.)
        if ctx.table_changed() {
            return Call::Nothing;
        }
        let Some(view) = &ctx.view else {
            return Call::Nothing;
        };
        // It has found another table. Most silos that write heartbeats rarely would find it at their next
        // look only.
        let found = header.table_id.is_none() && header.version == 0;
        if found && ctx.has_pulse() && ctx.is_member(&header.from, header.instance) {
            return Call::Hint;
        }
        if header.table_id != Some(view.table_id()) || !ctx.config.enable_dissemination {
            return Call::Nothing;
        }
        let (mine, digest) = (view.version(), view.short_digest());
        let believed = ctx.is_member(&header.from, header.instance)
            && !ctx.distrust.has(&header.from, ctx.mono());
        // Two views of one version: only all rows of the table can tell which one is wrong.
        if header.version == mine && header.digest != digest {
            if !believed {
                return Call::Hint;
            }
            return match self.read_once(ctx) {
                Call::Read => Call::ReadAll,
                call => call,
            };
        }
        if header.version > mine {
            if !believed {
                return Call::Hint;
            }
            let now = ctx.mono();
            match self.asked {
                Some((at, v)) if v >= mine && now.since(at) < ASK_PATIENCE => {
                    if ctx.passes_news_on() {
                        return Call::Behind;
                    }
                }
                // Whoever was asked does not answer.
                Some((at, v)) if v >= mine && now.since(at) < ASKED_IN_VAIN => {
                    return match self.read_once(ctx) {
                        Call::Read => Call::Look,
                        call => call,
                    };
                }
                _ => {
                    self.asked = Some((now, mine));
                    if ctx.passes_news_on() {
                        return Call::Behind;
                    }
                    let table_id = Some(view.table_id());
                    let body = Message::AskDelta {
                        table_id,
                        have: mine,
                    };
                    ctx.reply(link, header.from, body);
                }
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
        let Some(view) = ctx.told() else { return };
        let delta = if table_id == Some(view.table_id()) {
            if have >= view.version() {
                if ctx.variant.scribe && self.held.len() < MAX_REMEMBERED {
                    let at = ctx.now.mono;
                    self.held.insert(from, (link, have, at));
                }
                return;
            }
            let kept = ctx.kept.at(have);
            let is_told = |told: &Arc<Message>| is_delta(told, have, view);
            let told = self.told_last.iter().find(|told| is_told(told)).cloned();
            let told = told.or_else(|| ctx.views.as_ref()?.delta(is_told));
            match told.filter(|_| kept.is_some() || view.lists_since(have)) {
                Some(told) => Some(told),
                None => {
                    let since = |from| Delta::between(from, view.snapshot());
                    let delta = view.delta_since(have).or_else(|| kept.map(since));
                    let told = delta.map(|delta| Arc::new(Message::Delta(Box::new(delta))));
                    if let Some((views, told)) = ctx.views.as_ref().zip(told.as_ref()) {
                        views.keep_delta(told);
                    }
                    told
                }
            }
        } else {
            None
        };
        let delta = match delta {
            Some(delta) => {
                self.told_last = Some(delta.clone());
                delta
            }
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
                Arc::new(Message::Delta(Box::new(Delta::whole(view))))
            }
        };
        ctx.reply(link, from, delta);
    }

    /// What this silo tells others has moved: answers those that have asked for more than this silo had.
    pub(crate) fn on_news(&mut self, ctx: &mut Ctx, all_are_told: bool) {
        let (now, version) = (ctx.mono(), ctx.told().map_or(0, ClusterView::version));
        if self.held.is_empty() || ctx.suspended {
            return;
        }
        let table_id = ctx.base.as_ref().map(ClusterView::table_id);
        for (from, (link, have, at)) in std::mem::take(&mut self.held) {
            if now.since(at) > HELD || (all_are_told && have < version) {
                continue;
            }
            self.on_ask(ctx, link, from, table_id, have);
        }
    }

    /// Handles a delta of a member. When it is adopted, the new view is in the context.
    pub(crate) fn on_delta(
        &mut self,
        ctx: &mut Ctx,
        from: SiloAddress,
        delta: &Delta,
        witness: &Witness<'_>,
    ) -> Call {
        let Some(view) = &ctx.view else {
            return Call::Nothing;
        };
        if delta.to() <= view.version() && delta.table_id() == view.table_id() {
            return Call::Nothing;
        }
        if ctx.distrust.has(&from, ctx.mono()) {
            return Call::Hint;
        }
        if delta.table_id() != view.table_id() {
            return self.read_once(ctx);
        }
        // A suspended silo whose table calls fail is told of newcomers: it keeps nobody out. It publishes
        // nothing of that. Invariant P14.
        if ctx.waits_for_the_table() || ctx.table_doubted() {
            return Call::Nothing;
        }
        let known = ctx.views.as_ref().and_then(|views| views.rows_of(delta));
        let resolved = match delta.resolve_with(Some(view.snapshot()), known) {
            Ok(snapshot) => snapshot,
            Err(crate::DeltaError::OtherVersion { .. }) => return Call::Ask,
            Err(_) => {
                ctx.observe(Observation::Dropped {
                    reason: "bad_delta",
                });
                // Upon what the table has shown, the delta of an honest member is complete.
                if !ctx.is_announced() {
                    ctx.distrust.begin(from, ctx.mono());
                }
                return self.read_once(ctx);
            }
        };
        let shown = ctx.kept.shown.as_ref();
        if let Some(shown) = shown.filter(|s| s.version() == resolved.version()) {
            let is_its = shown.token().same_commit(&resolved.token);
            return match shown.with_rows(&resolved.rows).filter(|_| is_its) {
                Some(snapshot) => Call::Shown(Box::new(snapshot)),
                // The table has something else.
                None => self.read_once(ctx),
            };
        }
        match gate::hear(ctx, from, resolved, witness) {
            Hearing::Announced => Call::Adopted,
            Hearing::Known => Call::Nothing,
            Hearing::Doubtful => Call::Doubt(self.read_once(ctx) == Call::Read),
            Hearing::NeedsRead => self.read_once(ctx),
        }
    }

    /// Whether a newcomer may be sent all rows by this link again: at a limited rate.
    pub(crate) fn may_serve(&mut self, now: MonoTime, link: LinkId) -> bool {
        self.newcomers.retain(|_, at| now.since(*at) < ASK_PATIENCE);
        let free = self.newcomers.len() < MAX_REMEMBERED && !self.newcomers.contains_key(&link);
        if free {
            self.newcomers.insert(link, now);
        }
        free
    }

    /// Limits reads that messages cause to one per probe period, so that a faulty peer cannot
    /// overload the table.
    pub(crate) fn read_once(&mut self, ctx: &Ctx) -> Call {
        let now = ctx.mono();
        if self
            .last_forced_read
            .is_some_and(|t| now.since(t) < ctx.config.probe_period)
        {
            return Call::Nothing;
        }
        self.last_forced_read = Some(now);
        Call::Read
    }

    /// Tells a peer that this silo knows as Dead to read the table.
    pub(crate) fn on_dead_peer(&mut self, ctx: &mut Ctx, link: LinkId, from: SiloAddress) {
        let now = ctx.mono();
        let patience = ctx.config.probe_period;
        self.told.retain(|_, at| now.since(*at) < patience);
        if self.told.len() < MAX_REMEMBERED
            && let Entry::Vacant(told) = self.told.entry(from)
        {
            told.insert(now);
            let version = ctx.base_version();
            ctx.reply(link, from, Message::YouAreDead { version });
        }
    }

    /// Sends this silo's last message to each peer.
    pub(crate) fn farewell(&mut self, ctx: &mut Ctx, version: u64, before: Option<u64>) {
        let delta = before
            .and_then(|before| ctx.base.as_ref().and_then(|v| v.delta_since(before)))
            .map(Box::new);
        let body = Arc::new(Message::Farewell { version, delta });
        for silo in ctx.members.alive.clone() {
            if silo != ctx.me {
                ctx.send_to(silo, body.clone());
            }
        }
    }
}
