//! This silo's own changes that another one was asked to write: the one that made the last commit,
//! else the oldest Active one. Many such changes go into one commit, and few silos contend for the
//! version row. A silo that hears nothing for a while writes its change itself, until another silo has
//! written: that one is asked then. Where the connection to the other silo is refused or breaks, or
//! another process is at its address, nobody waits: the next oldest silo is asked.
//!
//! What the other silo says proves nothing. A change is done when this silo's row shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use super::desk::REPEAT;
use super::{Outcome, Writer};
use crate::intent::{Action, Answer, Intent, Refusal};
use crate::protocol::contacts::Contacts;
use crate::protocol::context::Ctx;
use crate::protocol::forward::{OwnChange, Standing};
use crate::protocol::message::{MAX_NAMED, Message};
use crate::protocol::observation::{Observation, Unwritten};
use crate::protocol::timers::Timer;
use crate::{IntentId, MonoTime, SiloAddress, SiloStatus};

/// The shortest time without a word after which a silo writes its change itself, besides a random
/// wait that grows with the number of changes that waited.
const SILENCE: Duration = REPEAT
    .saturating_mul(2)
    .saturating_add(Duration::from_millis(100));
const SPREAD: Duration = Duration::from_secs(1);
/// How much longer that wait is for each unit of time by which this silo's own timers were late: on a
/// machine that is so busy the other one is slow as well, and what it has said may wait to be read.
const PER_LAG: u32 = 10;
/// The most that this adds.
const MOST_FOR_LAG: Duration = Duration::from_secs(8);
/// How much longer that wait may be for each change that waits.
const PER_WAITING: Duration = Duration::from_millis(2);
/// How long a silo that sent a change back is not asked again.
const AVOIDED: Duration = Duration::from_secs(1);
/// The same for a silo of which nothing was heard, or that is gone.
const GONE: Duration = AVOIDED.saturating_mul(10);
/// If so many are not asked now, nobody is but the one that made the last commit and the leader.
const TRIED: usize = 3;
/// How long, and for up to as long again, a change waits for the silo that was asked to write it,
/// whatever that one says: it may lie.
const LONGEST: Duration = SPREAD.saturating_mul(LONGEST_PER_SPREAD);
const LONGEST_PER_SPREAD: u32 = 20;
/// A silo whose activation has been refused for this long writes it itself: the other one may judge by
/// another clock which votes are fresh, and so whom a newcomer need not reach; or it lies. In a
/// cluster that starts, some are refused again and again for seconds, because the view moves.
const REFUSED: Duration = Duration::from_secs(10);
/// After this time a silo asks another one, if two commits or more have gone by without its change and
/// somebody else made the last one.
const PASSED_OVER: Duration = Duration::from_secs(2);
const COMMITS: u64 = 2;
/// How long, and for up to as long again, a change waits while fewer than [`COMMITS`] are seen, and
/// [`PER_WAITING`] more for each of the changes that are said to wait, up to [`MOST_WAITING`].
const STILL: Duration = SPREAD.saturating_mul(STILL_PER_SPREAD);
const STILL_PER_SPREAD: u32 = 5;
const MOST_WAITING: u32 = 2048;
/// How long after the word that a change is written its commit is waited for as news, before the
/// table is read.
const NEWS: Duration = Duration::from_millis(300);

#[derive(Debug)]
struct Away {
    intent: Intent,
    submitted: MonoTime,
    to: SiloAddress,
    /// When something was last heard of it, or it was sent.
    heard: MonoTime,
    patience: Duration,
    /// When it waits no longer, whatever is heard.
    until: MonoTime,
    /// When it was sent, and the version then.
    sent: (MonoTime, u64),
    /// How long it waits while that version stays the last.
    still: Duration,
    /// How many are said to wait.
    waiting: u32,
    /// The version that is said to have it, and when that was said.
    written: Option<(u64, MonoTime)>,
}

impl Away {
    /// How long it waits while hardly a commit is seen.
    fn still(&self) -> Duration {
        self.still + PER_WAITING.saturating_mul(self.waiting)
    }
}

/// How much longer silence is no sign of anything.
fn slack(ctx: &Ctx) -> Duration {
    ctx.lag.slack(ctx.mono(), PER_LAG, MOST_FOR_LAG)
}

/// What names the question about these changes, for whoever answers that it is another process.
pub(crate) fn question(first: IntentId) -> u64 {
    u64::try_from(first.get() & u128::from(u64::MAX)).unwrap_or_default()
}

#[derive(Debug, Default)]
pub(super) struct Courier {
    away: BTreeMap<IntentId, Away>,
    /// Changes that another silo may still write: they are never withdrawn. Each with the time after
    /// which nobody is asked any more.
    shared: BTreeMap<IntentId, MonoTime>,
    /// Changes that this silo writes itself, until another silo has made a later version than this.
    direct: BTreeMap<IntentId, u64>,
    avoided: BTreeMap<SiloAddress, MonoTime>,
    /// When the first activation of this silo was refused.
    refused: Option<MonoTime>,
    /// The version of the announced view whose version row was last asked for.
    looked_at: u64,
}

impl Courier {
    pub(super) fn has(&self, mine: impl Fn(&Intent) -> bool) -> bool {
        self.away.values().any(|a| mine(&a.intent))
    }

    pub(super) fn is_shared(&self, id: IntentId) -> bool {
        self.shared.contains_key(&id)
    }

    pub(super) fn forget(&mut self, id: IntentId) {
        self.shared.remove(&id);
        self.direct.remove(&id);
    }

    /// Whether a silo may be asked.
    fn fits(&self, ctx: &Ctx, suspected: &BTreeSet<SiloAddress>, silo: &SiloAddress) -> bool {
        let status = ctx.base.as_ref().and_then(|view| view.status(silo));
        matches!(status, Some(SiloStatus::Joining | SiloStatus::Active))
            && !suspected.contains(silo)
            && !silo.same_endpoint(&ctx.me)
            && self.avoids(ctx.mono(), silo).is_none()
    }

    /// Until when a silo is not asked, if it is not asked now.
    fn avoids(&self, now: MonoTime, silo: &SiloAddress) -> Option<MonoTime> {
        self.avoided.get(silo).copied().filter(|until| now < *until)
    }

    /// The silo that made the last commit, if it may be asked.
    fn last(&self, ctx: &Ctx, suspected: &BTreeSet<SiloAddress>) -> Option<SiloAddress> {
        last_committer(ctx).filter(|silo| self.fits(ctx, suspected, silo))
    }

    /// The silo that a change of this one is at.
    pub(super) fn asked(&self) -> Option<SiloAddress> {
        self.away.values().next().map(|a| a.to)
    }

    /// Whom to ask; `None` = write it yourself.
    pub(super) fn scribe(
        &self,
        ctx: &Ctx,
        suspected: &BTreeSet<SiloAddress>,
    ) -> Option<SiloAddress> {
        if last_committer(ctx) == Some(ctx.me) {
            return None;
        }
        if let Some(last) = self.last(ctx, suspected) {
            return Some(last);
        }
        let leader = ctx.leader().filter(|leader| *leader != ctx.me);
        if let Some(leader) = leader.filter(|silo| self.fits(ctx, suspected, silo)) {
            return Some(leader);
        }
        // All that are left without a scribe ask the same one. If the first of them are gone as well,
        // so may be all others.
        let gone = |until: &&MonoTime| ctx.mono() < **until;
        if self.avoided.values().filter(gone).count() >= TRIED {
            return None;
        }
        let view = ctx.base.as_ref()?;
        let serves = |silo: &SiloAddress| *silo == ctx.me || self.fits(ctx, suspected, silo);
        let all = view.members().map(|e| e.address).filter(serves);
        // By when they started: the other views have the same silo first.
        let oldest = all.min_by_key(|silo| (silo.epoch(), *silo))?;
        Some(oldest).filter(|silo| *silo != ctx.me)
    }
}

/// The silo that made the last commit that this one knows.
fn last_committer(ctx: &Ctx) -> Option<SiloAddress> {
    let view = ctx.base.as_ref()?;
    view.snapshot().version_row.recent.last()?.committer
}

impl Writer {
    /// Sends this silo's own changes to the one that writes for others, if there is one.
    pub(crate) fn forward(
        &mut self,
        ctx: &mut Ctx,
        contacts: &Contacts,
        suspected: &BTreeSet<SiloAddress>,
    ) {
        if !ctx.variant.scribe
            || self.queue.len() == 0
            || ctx.suspended
            || ctx.table_doubted()
            || self.desk.is_open()
        {
            return;
        }
        let contended = self.conflicts.are_recent();
        let (courier, now) = (&self.courier, ctx.mono());
        let refused = courier.refused.map(|at| now.since(at));
        let version = ctx.base_version();
        let somebody_wrote = courier.last(ctx, suspected).is_some();
        let goes = |intent: &Intent| {
            let since = courier.direct.get(&intent.id);
            intent.author == Some(ctx.me)
                && since.is_none_or(|since| somebody_wrote && version > *since)
                && courier
                    .shared
                    .get(&intent.id)
                    .is_none_or(|until| now < *until)
                && match &intent.action {
                    Action::Join(_) => true,
                    Action::BecomeActive { contacted, .. } => {
                        // Silos that tell no words leave nothing to prove contact by.
                        contacted.len() <= MAX_NAMED
                            && contacted.iter().all(|silo| contacts.word(silo).is_some())
                            && refused.is_none_or(|time| time < REFUSED)
                    }
                    Action::BeginShutdown { .. } | Action::Leave { .. } => contended,
                    _ => false,
                }
        };
        if !self.queue.any(goes) {
            return;
        }
        let Some(to) = courier.scribe(ctx, suspected) else {
            return;
        };
        let taken = self.queue.take(goes);
        let jitter = ctx.jitter(SPREAD);
        let patience = SILENCE + jitter;
        // Spread over as long again.
        let until = now + LONGEST + jitter.saturating_mul(LONGEST_PER_SPREAD);
        let mut changes = Vec::with_capacity(taken.len());
        for (intent, submitted) in taken {
            if let Some(change) = OwnChange::of(&intent.action, |silo| contacts.word(silo)) {
                changes.push((intent.id, change));
                let until = *self.courier.shared.entry(intent.id).or_insert(until);
                self.courier.direct.remove(&intent.id);
                let away = Away {
                    intent,
                    submitted,
                    to,
                    heard: now,
                    patience,
                    until,
                    sent: (now, version),
                    still: STILL + jitter.saturating_mul(STILL_PER_SPREAD),
                    waiting: 0,
                    written: None,
                };
                self.courier.away.insert(away.intent.id, away);
            }
        }
        let sent = changes.len();
        ctx.send_to(to, Message::Forward { changes });
        ctx.observe(Observation::ChangesSent { to, changes: sent });
        self.wait_for_word(ctx);
    }

    fn wait_for_word(&self, ctx: &mut Ctx) {
        let slack = slack(ctx);
        let next = self.courier.away.values().map(|a| {
            let news = a.written.map(|(_, at)| at + NEWS);
            let still = a.sent.0 + a.still() + slack;
            let next = news.or(Some(still)).filter(|at| *at > ctx.mono());
            let silent = a.heard + a.patience + slack;
            next.map_or(silent, |at| at.min(silent)).min(a.until)
        });
        match next.min() {
            Some(at) => ctx.set_timer_at(Timer::Courier, at),
            None => ctx.timers.clear(Timer::Courier),
        }
    }

    /// Handles what a silo says of the changes that it was asked to write. Returns what the table
    /// refused: the caller decides what to do. `passes` = this silo joins and has seen
    /// itself that an Active one need not be reached.
    pub(crate) fn on_receipt(
        &mut self,
        ctx: &mut Ctx,
        from: SiloAddress,
        standings: &[(IntentId, Standing)],
        waiting: u32,
        passes: bool,
    ) -> Vec<Outcome> {
        let now = ctx.mono();
        let mut outcomes = Vec::new();
        for (id, standing) in standings {
            let asked = |a: &&mut Away| a.to == from && a.written.is_none();
            // Whoever says that a change is written has said its last word: the row has to show it.
            let Some(away) = self.courier.away.get_mut(id).filter(asked) else {
                continue;
            };
            away.heard = now;
            match standing {
                Standing::Waiting => {
                    let longest = SPREAD.max(PER_WAITING.saturating_mul(waiting));
                    away.patience = SILENCE + ctx.jitter(longest);
                    away.waiting = waiting.min(MOST_WAITING);
                }
                Standing::Written { version } => {
                    away.patience = REPEAT * 6;
                    away.written = Some((*version, now));
                }
                Standing::Moot => {
                    away.patience = REPEAT * 6;
                    away.written = Some((ctx.base_version() + 1, now.minus(NEWS)));
                }
                // What it has seen the other one may not see for long.
                Standing::Refused
                    if passes && matches!(away.intent.action, Action::BecomeActive { .. }) =>
                {
                    let version = ctx.base_version();
                    self.take_back(ctx, *id, Some(version), Unwritten::Refused);
                }
                Standing::Refused if matches!(away.intent.action, Action::BecomeActive { .. }) => {
                    if let Some(away) = self.courier.away.remove(id) {
                        self.courier.forget(*id);
                        self.courier.refused.get_or_insert(now);
                        let why = Unwritten::Refused;
                        ctx.observe(Observation::ChangeReturned { from, why });
                        let answer = Answer::Refused(Refusal::NotContacted(Vec::new()));
                        outcomes.push(Outcome::Answered(away.intent, answer));
                    }
                }
                // Only the table can end a join.
                Standing::Refused => {
                    self.take_back(ctx, *id, Some(u64::MAX), Unwritten::Refused);
                }
                Standing::Elsewhere => {
                    self.avoid(now, from, AVOIDED);
                    self.take_back(ctx, *id, None, Unwritten::Elsewhere);
                }
            }
        }
        self.leave_the_idle(ctx);
        self.wait_for_word(ctx);
        outcomes
    }

    /// Leaves silos that say that a change waits, but do not write it: others do, or nobody.
    fn leave_the_idle(&mut self, ctx: &mut Ctx) {
        let (now, version) = (ctx.mono(), ctx.base_version());
        let slack = slack(ctx);
        let writes = last_committer(ctx);
        let mut idle = Vec::new();
        for away in self.courier.away.values().filter(|a| a.written.is_none()) {
            let (since, at) = away.sent;
            let time = now.since(since);
            let another = writes.is_some_and(|silo| silo != away.to);
            if version >= at + COMMITS && another && time >= PASSED_OVER + slack {
                idle.push((away.intent.id, away.to, None));
            } else if version < at + COMMITS && time >= away.still() + slack {
                idle.push((away.intent.id, away.to, Some(version)));
            }
        }
        for (id, to, direct) in idle {
            self.avoid(now, to, GONE);
            self.take_back(ctx, id, direct, Unwritten::Idle);
            // Somebody else may have written since.
            self.want_row();
        }
    }

    /// Takes a change back: this silo writes it until another one has made a version after `direct`.
    fn take_back(&mut self, ctx: &mut Ctx, id: IntentId, direct: Option<u64>, why: Unwritten) {
        if let Some(away) = self.courier.away.remove(&id) {
            let from = away.to;
            ctx.observe(Observation::ChangeReturned { from, why });
            if let Some(version) = direct {
                self.courier.direct.insert(id, version);
            }
            self.queue.push(away.intent, away.submitted.min(ctx.mono()));
        }
    }

    fn avoid(&mut self, now: MonoTime, silo: SiloAddress, time: Duration) {
        self.courier.avoided.retain(|_, until| *until > now);
        let until = self.courier.avoided.entry(silo).or_default();
        *until = (now + time).max(*until);
    }

    /// Takes back what nothing was heard of for too long. Somebody else may have written since.
    pub(crate) fn on_courier_timer(&mut self, ctx: &mut Ctx) {
        let now = ctx.mono();
        let slack = slack(ctx);
        let silent = |a: &&Away| now >= a.until || now.since(a.heard) >= a.patience + slack;
        let late = self.courier.away.values().filter(silent);
        let late: Vec<(IntentId, SiloAddress)> = late.map(|a| (a.intent.id, a.to)).collect();
        let writes = last_committer(ctx);
        for (id, to) in late {
            self.avoid(now, to, GONE);
            // If another one has written meanwhile, that one is asked.
            let is_left = writes.is_none_or(|silo| silo == to || self.is_avoided(now, &silo));
            let direct = is_left.then(|| ctx.base_version());
            self.take_back(ctx, id, direct, Unwritten::Unanswered);
            self.want_row();
        }
        self.leave_the_idle(ctx);
        self.wait_for_word(ctx);
    }

    /// The machine at this endpoint refuses connections, or has closed one: whoever was asked there is
    /// not waited for.
    pub(crate) fn on_gone(&mut self, ctx: &mut Ctx, endpoint: SocketAddr) {
        let there = |a: &&Away| a.to.endpoint() == endpoint;
        self.leave(ctx, there);
    }

    /// Another process is at the address of the silo that was asked. `nonce` shows that it has got the
    /// question. Returns false if this silo did not ask there.
    pub(crate) fn on_not_me(&mut self, ctx: &mut Ctx, endpoint: SocketAddr, nonce: u64) -> bool {
        let there = |a: &&Away| a.to.endpoint() == endpoint && question(a.intent.id) == nonce;
        let Some(to) = self.courier.away.values().find(there).map(|a| a.to) else {
            return false;
        };
        self.leave(ctx, |a| a.to == to);
        true
    }

    fn leave(&mut self, ctx: &mut Ctx, whose: impl Fn(&&Away) -> bool) {
        let all = self.courier.away.values().filter(whose);
        let all: Vec<(IntentId, SiloAddress)> = all.map(|a| (a.intent.id, a.to)).collect();
        if all.is_empty() {
            return;
        }
        for (id, to) in all {
            self.avoid(ctx.mono(), to, GONE);
            self.take_back(ctx, id, None, Unwritten::Gone);
        }
        // Somebody else may have written since. And it may be a stranger that says that the other one
        // is gone: only what the table says makes this silo write.
        self.want_row();
        self.wait_for_word(ctx);
    }

    /// Whether a silo is not asked now.
    pub(crate) fn is_avoided(&self, now: MonoTime, silo: &SiloAddress) -> bool {
        self.courier.avoids(now, silo).is_some()
    }

    /// Others have found that this silo is gone: it is not asked.
    pub(crate) fn is_gone(&mut self, ctx: &Ctx, silo: SiloAddress) {
        self.avoid(ctx.mono(), silo, GONE);
    }

    /// The changes that this silo's row shows, whoever wrote them; and asks the table about those that
    /// are said to be written.
    pub(crate) fn written_by_others(&mut self, ctx: &mut Ctx) -> Vec<Outcome> {
        if self.courier.away.is_empty() {
            return Vec::new();
        }
        let Some(view) = &ctx.base else {
            return Vec::new();
        };
        let mine = view.get(&ctx.me);
        let mine = mine.filter(|e| e.instance_id == ctx.identity.instance);
        let shows = |action: &Action| {
            mine.is_some_and(|e| match action {
                Action::Join(_) => true,
                Action::BecomeActive { .. } => e.status >= SiloStatus::Active,
                Action::BeginShutdown { .. } => e.status > SiloStatus::Active,
                Action::Leave { .. } => e.status == SiloStatus::Dead,
                _ => false,
            })
        };
        let version = view.version();
        let done = self.courier.away.values();
        let done: Vec<IntentId> = done
            .filter(|a| shows(&a.intent.action))
            .map(|a| a.intent.id)
            .collect();
        let mut outcomes = Vec::new();
        for id in done {
            self.courier.forget(id);
            if let Some(away) = self.courier.away.remove(&id) {
                outcomes.push(Outcome::Answered(away.intent, Answer::Applied { version }));
            }
        }
        if outcomes.is_empty() {
            self.ask_the_table(ctx);
        } else {
            self.wait_for_word(ctx);
        }
        outcomes
    }

    /// Confirms the news that should show a change of this silo, or reads the rows if it is late.
    fn ask_the_table(&mut self, ctx: &Ctx) {
        let said = self.courier.away.values().filter_map(|a| a.written);
        let Some((version, at)) = said.min_by_key(|(_, at)| *at) else {
            return;
        };
        if ctx.base_version() >= version {
            return;
        }
        let is_news = ctx.is_announced() && ctx.version() >= version;
        if is_news && self.courier.looked_at != ctx.version() {
            self.courier.looked_at = ctx.version();
            // What follows from the version row is asked of others first.
            self.want_row();
        } else if !is_news
            && ctx.mono().since(at) >= NEWS
            && self.last_row.is_none_or(|r| r < at + NEWS)
        {
            self.want_row();
        }
    }
}
