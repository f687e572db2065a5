//! This silo's own changes that another one was asked to write: the one that made the last commit,
//! else the oldest Active one. Many such changes go into one commit, and few silos contend for the
//! version row. A silo that hears nothing for a while writes its change itself.
//!
//! What the other silo says proves nothing. A change is done when this silo's row shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::desk::REPEAT;
use super::{Outcome, Writer};
use crate::intent::{Action, Answer, Intent, Refusal};
use crate::protocol::contacts::Contacts;
use crate::protocol::context::Ctx;
use crate::protocol::forward::{OwnChange, Standing};
use crate::protocol::message::{MAX_NAMED, Message};
use crate::protocol::timers::Timer;
use crate::{IntentId, MonoTime, SiloAddress, SiloStatus};

/// The shortest time without a word after which a silo writes its change itself, besides a random
/// wait that grows with the number of changes that waited.
const SILENCE: Duration = REPEAT
    .saturating_mul(2)
    .saturating_add(Duration::from_millis(100));
const SPREAD: Duration = Duration::from_secs(1);
/// How much longer that wait may be for each change that waits.
const PER_WAITING: Duration = Duration::from_millis(2);
/// How long a silo that sent a change back is not asked again.
const AVOIDED: Duration = Duration::from_secs(1);
/// How long, and for up to as long again, a change waits for the silo that was asked to write it,
/// whatever that one says: it may lie.
const LONGEST: Duration = SPREAD.saturating_mul(LONGEST_PER_SPREAD);
const LONGEST_PER_SPREAD: u32 = 20;
/// A silo whose activation has been refused for this long writes it itself: the other one may judge by
/// another clock which votes are fresh, and so whom a newcomer need not reach; or it lies. In a
/// cluster that starts, some are refused again and again for seconds, because the view moves.
const REFUSED: Duration = Duration::from_secs(10);
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
    /// The version that is said to have it, and when that was said.
    written: Option<(u64, MonoTime)>,
}

#[derive(Debug, Default)]
pub(super) struct Courier {
    away: BTreeMap<IntentId, Away>,
    /// Changes that another silo may still write: they are never withdrawn.
    shared: BTreeSet<IntentId>,
    /// Changes that this silo writes itself.
    direct: BTreeSet<IntentId>,
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
        self.shared.contains(&id)
    }

    pub(super) fn forget(&mut self, id: IntentId) {
        self.shared.remove(&id);
        self.direct.remove(&id);
    }

    /// Whom to ask; `None` = write it yourself.
    fn scribe(&self, ctx: &Ctx, suspected: &BTreeSet<SiloAddress>) -> Option<SiloAddress> {
        let view = ctx.base.as_ref()?;
        let now = ctx.mono();
        let fits = |silo: &SiloAddress| {
            let serves = |s: SiloStatus| matches!(s, SiloStatus::Joining | SiloStatus::Active);
            view.status(silo).is_some_and(serves)
                && !suspected.contains(silo)
                && !silo.same_endpoint(&ctx.me)
                && self.avoided.get(silo).is_none_or(|until| now >= *until)
        };
        let last = view.snapshot().version_row.recent.last();
        let last = last.and_then(|record| record.committer);
        if last == Some(ctx.me) {
            return None;
        }
        let leader = ctx.leader().filter(|leader| *leader != ctx.me);
        last.filter(fits).or_else(|| leader.filter(fits))
    }
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
        let courier = &self.courier;
        let refused = courier.refused.map(|at| ctx.mono().since(at));
        let goes = |intent: &Intent| {
            intent.author == Some(ctx.me)
                && !courier.direct.contains(&intent.id)
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
        let now = ctx.mono();
        let jitter = ctx.jitter(SPREAD);
        let patience = SILENCE + jitter;
        // Spread over as long again.
        let until = now + LONGEST + jitter.saturating_mul(LONGEST_PER_SPREAD);
        let mut changes = Vec::with_capacity(taken.len());
        for (intent, submitted) in taken {
            if let Some(change) = OwnChange::of(&intent.action, |silo| contacts.word(silo)) {
                changes.push((intent.id, change));
                self.courier.shared.insert(intent.id);
                let away = Away {
                    intent,
                    submitted,
                    to,
                    heard: now,
                    patience,
                    until,
                    written: None,
                };
                self.courier.away.insert(away.intent.id, away);
            }
        }
        ctx.send_to(to, Message::Forward { changes });
        self.wait_for_word(ctx);
    }

    fn wait_for_word(&self, ctx: &mut Ctx) {
        let next = self.courier.away.values().map(|a| {
            let news = a.written.map(|(_, at)| at + NEWS);
            let news = news.filter(|at| *at > ctx.mono());
            news.unwrap_or(a.heard + a.patience).min(a.until)
        });
        match next.min() {
            Some(at) => ctx.timers.set(Timer::Courier, at.max(ctx.mono())),
            None => ctx.timers.clear(Timer::Courier),
        }
    }

    /// Handles what a silo says of the changes that it was asked to write. Returns what the table
    /// refused: the caller decides what to do.
    pub(crate) fn on_receipt(
        &mut self,
        ctx: &mut Ctx,
        from: SiloAddress,
        standings: &[(IntentId, Standing)],
        waiting: u32,
    ) -> Vec<Outcome> {
        let now = ctx.mono();
        let mut outcomes = Vec::new();
        for (id, standing) in standings {
            let Some(away) = self.courier.away.get_mut(id).filter(|a| a.to == from) else {
                continue;
            };
            away.heard = now;
            match standing {
                Standing::Waiting => {
                    let longest = SPREAD.max(PER_WAITING.saturating_mul(waiting));
                    away.patience = SILENCE + ctx.jitter(longest);
                }
                Standing::Written { version } => {
                    away.patience = REPEAT * 6;
                    away.written = Some((*version, now));
                }
                Standing::Moot => {
                    away.patience = REPEAT * 6;
                    away.written = Some((ctx.base_version() + 1, now.minus(NEWS)));
                }
                Standing::Refused if matches!(away.intent.action, Action::BecomeActive { .. }) => {
                    if let Some(away) = self.courier.away.remove(id) {
                        self.courier.forget(*id);
                        self.courier.refused.get_or_insert(now);
                        let answer = Answer::Refused(Refusal::NotContacted(Vec::new()));
                        outcomes.push(Outcome::Answered(away.intent, answer));
                    }
                }
                // Only the table can end a join.
                Standing::Refused => self.take_back(now, *id, true),
                Standing::Elsewhere => {
                    self.courier.avoided.retain(|_, until| *until > now);
                    self.courier.avoided.insert(from, now + AVOIDED);
                    self.take_back(now, *id, false);
                }
            }
        }
        self.wait_for_word(ctx);
        outcomes
    }

    fn take_back(&mut self, now: MonoTime, id: IntentId, direct: bool) {
        if let Some(away) = self.courier.away.remove(&id) {
            if direct {
                self.courier.direct.insert(id);
            }
            self.queue.push(away.intent, away.submitted.min(now));
        }
    }

    /// Takes back what nothing was heard of for too long.
    pub(crate) fn on_courier_timer(&mut self, ctx: &mut Ctx) {
        let now = ctx.mono();
        let silent = |a: &&Away| now >= a.until || now.since(a.heard) >= a.patience;
        let late = self.courier.away.values().filter(silent);
        let late: Vec<(IntentId, SiloAddress)> = late.map(|a| (a.intent.id, a.to)).collect();
        for (id, to) in late {
            self.courier.avoided.insert(to, now + AVOIDED * 10);
            self.take_back(now, id, true);
        }
        self.wait_for_word(ctx);
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
