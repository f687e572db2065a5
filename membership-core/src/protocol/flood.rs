//! Passes news on over the probe rings: the author of a commit sends it to its neighbours on all of
//! them, and whoever takes it sends it to its successors on four. No silo sends much, and there is no
//! tree that a dead silo could break. Small changes travel themselves; larger ones are announced, and
//! each silo asks one of those for them that announced them. Only where one silo writes for many
//! ([`flood_above`](crate::hooks::ProtocolVariant::flood_above)).
//!
//! What is passed on is announced, whoever says it: the table alone confirms.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::context::Ctx;
use super::message::Message;
use super::rings::{self, Rings, Successors};
use super::timers::Timer;
use crate::{ClusterView, CommitId, Delta, MonoTime, Row, SiloAddress};

/// On how many rings news is passed on.
const RINGS: usize = 4;
/// The largest changes that travel themselves, in bytes of rows.
const SMALL: usize = 4096;
/// How long one silo is waited for that was asked for changes, and how long a silo waits for news of
/// which a probe tells: it is on its way.
const PATIENCE: Duration = Duration::from_millis(100);
/// The same while the table is asked whether changes are true.
const DOUBTED: Duration = Duration::from_secs(1);
/// How long a silo is not asked again that has not answered, unless the view has moved since.
const SILENT: Duration = Duration::from_secs(1);
/// How many commits wait to be adopted, and how many silos are known that have what this one lacks.
const MOST: usize = 8;
/// How long news waits to be adopted.
const HELD: Duration = Duration::from_secs(5);

/// A commit that this silo has heard of and not adopted yet.
#[derive(Debug)]
pub(crate) struct News {
    from: SiloAddress,
    version: u64,
    commit: CommitId,
    body: Arc<Message>,
}

impl News {
    /// With its changes.
    pub(crate) fn told(from: SiloAddress, delta: &Delta) -> Self {
        Self {
            from,
            version: delta.to(),
            commit: delta.token.commit(),
            body: Arc::new(Message::News(Box::new(delta.clone()))),
        }
    }

    /// Without its changes.
    pub(crate) fn announced(from: SiloAddress, version: u64, commit: CommitId) -> Self {
        Self {
            from,
            version,
            commit,
            body: Arc::new(Message::Announce { version, commit }),
        }
    }

    fn has_changes(&self) -> bool {
        matches!(*self.body, Message::News(_))
    }
}

/// Whether a commit of this silo is passed on from one to the next. While many join, the rings of most are
/// not yet those of the author: it tells everybody.
pub(crate) fn is_due(ctx: &Ctx) -> bool {
    let members = &ctx.members;
    ctx.variant.scribe
        && (ctx.variant.flood_above).is_some_and(|above| members.alive.len() > above)
        && members.joining.len() <= members.active.len() / 8
}

/// Tells the neighbours of this silo, and those that have just joined, of its commit.
pub(crate) fn begin(ctx: &mut Ctx, delta: Delta) {
    let removed = delta.removed.iter().map(String::len);
    let size: usize = delta.rows.iter().map(Row::size).chain(removed).sum();
    let (version, commit) = (delta.to(), delta.token.commit());
    let body = Arc::new(if size <= SMALL {
        Message::News(Box::new(delta.without_known_records()))
    } else {
        Message::Announce { version, commit }
    });
    let (silos, one) = (ctx.config.num_probed_silos, ctx.variant.one_ring);
    let (alive, places) = (&ctx.members.alive, &ctx.members.places);
    let mut neighbours = rings::watchers(&ctx.me, alive, places, Rings { silos, one });
    neighbours.extend(rings::successors(&ctx.me, alive, silos));
    neighbours.extend(ctx.members.joining.iter());
    neighbours.remove(&ctx.me);
    for silo in neighbours {
        ctx.send_to(silo, body.clone());
    }
}

#[derive(Debug, Default)]
pub(crate) struct Flood {
    waiting: VecDeque<(MonoTime, News)>,
    /// The newest version that others are known to have, and who.
    wanted: u64,
    sources: VecDeque<SiloAddress>,
    /// Those that were asked: what this silo had then, and when.
    asked: VecDeque<(SiloAddress, u64, MonoTime)>,
    /// When the next of them may be asked.
    next: MonoTime,
}

impl Flood {
    /// Hears of a commit. Returns whether that is new to this silo. If it is only announced, the changes are
    /// asked for.
    pub(crate) fn hear(&mut self, ctx: &mut Ctx, news: News) -> bool {
        if news.version <= ctx.version() {
            return false;
        }
        let (from, version) = (news.from, news.version);
        let known = self.waiting.iter().any(|(_, w)| w.commit == news.commit);
        let has_changes = news.has_changes();
        if !known {
            if self.waiting.len() >= MOST {
                self.waiting.pop_front();
            }
            self.waiting.push_back((ctx.mono(), news));
        }
        if has_changes {
            self.note(ctx, from, version);
        } else if !ctx.distrust.has(&from, ctx.mono()) {
            self.ask(ctx, from, version);
        }
        !known
    }

    fn note(&mut self, ctx: &Ctx, silo: SiloAddress, version: u64) {
        if self.wanted <= ctx.version() {
            // They had what this silo has by now.
            self.sources.clear();
        }
        self.wanted = self.wanted.max(version);
        // Whoever says that it has news, and does not send it, may lie.
        let (now, have) = (ctx.mono(), ctx.version());
        let is_silent = |(asked, had, at): &(SiloAddress, u64, MonoTime)| {
            *asked == silo && *had == have && now.since(*at) < SILENT
        };
        if self.asked.iter().any(is_silent) {
            return;
        }
        if !self.sources.contains(&silo) && self.sources.len() < MOST {
            self.sources.push_back(silo);
        }
    }

    /// Asks this silo for the changes, or another one before it.
    pub(crate) fn ask(&mut self, ctx: &mut Ctx, silo: SiloAddress, version: u64) {
        self.note(ctx, silo, version);
        if ctx.mono() >= self.next {
            self.on_timer(ctx);
        }
    }

    /// The changes have come, and wait for the word of the table: nobody else need send them.
    pub(crate) fn wait_for_the_table(&mut self, ctx: &mut Ctx) {
        self.next = ctx.mono() + DOUBTED;
        ctx.set_timer_at(Timer::Flood, self.next);
    }

    /// This silo has news that has not come yet.
    pub(crate) fn know(&mut self, ctx: &mut Ctx, silo: SiloAddress, version: u64) {
        self.note(ctx, silo, version);
        if !ctx.timers.is_set(Timer::Flood) {
            ctx.set_timer(Timer::Flood, ctx.patience(PATIENCE));
        }
    }

    /// The news has not come in time, or nobody was asked yet.
    pub(crate) fn on_timer(&mut self, ctx: &mut Ctx) {
        let table_id = ctx.view.as_ref().map(ClusterView::table_id);
        let have = ctx.version();
        if have >= self.wanted || ctx.suspended || ctx.table_doubted() {
            return self.sources.clear();
        }
        if self.sources.is_empty() {
            // Whoever says so again is asked.
            self.wanted = 0;
        }
        if let (Some(silo), Some(_)) = (self.sources.pop_front(), table_id) {
            self.next = ctx.mono() + ctx.patience(PATIENCE);
            if self.asked.len() >= MOST {
                self.asked.pop_front();
            }
            self.asked.push_back((silo, have, ctx.mono()));
            ctx.send_to(silo, Message::AskDelta { table_id, have });
            ctx.set_timer_at(Timer::Flood, self.next);
        }
    }

    /// Passes on what this silo has adopted meanwhile.
    pub(crate) fn pass_on(&mut self, ctx: &mut Ctx, successors: &Successors) {
        if self.waiting.is_empty() {
            return;
        }
        let (now, version) = (ctx.mono(), ctx.version());
        let mut ready = Vec::new();
        for (at, news) in std::mem::take(&mut self.waiting) {
            if news.version <= version {
                ready.push(news);
            } else if now.since(at) < HELD {
                self.waiting.push_back((at, news));
            }
        }
        if !ctx.is_active() || ctx.suspended {
            return;
        }
        for news in ready {
            let Some(author) = author(ctx, &news) else {
                continue;
            };
            let next: BTreeSet<SiloAddress> = successors.silos().take(RINGS).collect();
            for silo in next {
                if silo != news.from && Some(silo) != author {
                    ctx.send_to(silo, news.body.clone());
                }
            }
        }
    }
}

/// Who made this commit, if this silo has adopted it.
fn author(ctx: &Ctx, news: &News) -> Option<Option<SiloAddress>> {
    let row = &ctx.view.as_ref()?.snapshot().version_row;
    let record = row.record(news.version)?;
    (record.id == news.commit).then_some(record.committer)
}
