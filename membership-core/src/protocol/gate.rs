//! The gate that every view must pass: same table, larger version, consistent with the recent
//! commits, no Dead silo alive again. Invariants P1 to P3 and P16, clause T16.
//!
//! What the table says is *confirmed*, and alone decides. What another silo says is *announced*: it
//! is published, but withdrawn when the table contradicts it.

use std::collections::BTreeSet;

use super::context::{Announcement, Ctx};
use crate::intent::needed_votes;
use crate::model::version::RECENT_COMMITS;
use crate::{
    CauseOfDeath, ClusterView, Discontinuity, MembershipEntry, MonoTime, RowRead, SiloAddress,
    SiloStatus, Snapshot, check_snapshot, check_token,
};

/// Maximum increase of the version by a message; a larger one needs a read.
const MAX_LEAP: u64 = 1000;

/// How the table gave a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Read from the table.
    Read,
    /// Made by a commit of this silo that the table acknowledged.
    Commit,
}

/// The result for a snapshot of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    /// It is now the confirmed view.
    Adopted,
    /// It is now the confirmed view, and the announced one, which it contradicts, is dropped. This
    /// was the version of that one.
    Withdrawn(u64),
    /// It has nothing new.
    Known,
    /// It is older than the confirmed view.
    Old,
    /// It is not consistent with the confirmed view.
    Broken(Discontinuity),
}

/// The result for a snapshot of another silo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hearing {
    /// It is now the view, announced.
    Announced,
    /// It has nothing new.
    Known,
    /// It needs a look at the table before it is published. It is kept: the table's version row can show
    /// that it is true.
    Doubtful,
    /// It is not consistent with the view, or changes too much to publish without a read.
    NeedsRead,
}

/// What this silo has seen itself of the silos that another one declares dead.
pub(crate) struct Witness<'a> {
    /// Silos whose heartbeat is stale.
    pub(crate) stale: &'a BTreeSet<SiloAddress>,
    /// Whether a silo has just answered this one.
    pub(crate) heard: &'a dyn Fn(&SiloAddress) -> bool,
}

/// Passes a snapshot of the table. `newest_at` is when the call was sent, if the answer is
/// linearizable: the table had no newer version then.
pub(crate) fn pass(
    ctx: &mut Ctx,
    snapshot: Snapshot,
    source: Source,
    newest_at: Option<MonoTime>,
) -> Passage {
    let snapshot = ctx.interned(snapshot);
    if let Some(base) = &ctx.base {
        let known = base.snapshot();
        if snapshot.version() < known.version() {
            return if snapshot.table_id() != known.table_id() {
                Passage::Broken(Discontinuity::Replaced)
            } else if newest_at.is_some() {
                Passage::Broken(Discontinuity::RolledBack)
            } else {
                Passage::Old
            };
        }
        if is_same(&snapshot, known) {
            return confirm(ctx, newest_at);
        }
        let checked = match source {
            Source::Read => check_snapshot(known, &snapshot),
            Source::Commit => check_token(&known.token, &snapshot.version_row),
        };
        if let Err(how) = checked {
            return Passage::Broken(how);
        }
        if has_risen(known, &snapshot, snapshot.changed_since(known).as_deref()) {
            return Passage::Broken(Discontinuity::RolledBack);
        }
    }
    let announced = ctx.view.clone().zip(ctx.announced.clone());
    let Some((view, announced)) = announced else {
        install(ctx, snapshot, newest_at);
        return Passage::Adopted;
    };
    let told = view.snapshot();
    let agrees = if is_same(&snapshot, told) {
        // The application has this view already: it keeps what was compared for it.
        view.confirm(newest_at);
        let view = view.as_read(snapshot);
        stand_on(ctx, view.clone());
        publish(ctx, view);
        return Passage::Adopted;
    } else if snapshot.version() > told.version() {
        check_snapshot(told, &snapshot).is_ok()
            && !has_risen(told, &snapshot, snapshot.changed_since(told).as_deref())
    } else if snapshot.version() < told.version()
        && newest_at.is_none_or(|sent| announced.may_follow(snapshot.version(), sent))
        && check_token(&snapshot.token, &told.version_row).is_ok()
    {
        // The table may have gone on to the announced version since this read.
        ctx.announced = Some(announced.after(&view));
        stand_on(ctx, ClusterView::confirmed(snapshot, newest_at));
        return Passage::Adopted;
    } else {
        false
    };
    if agrees {
        install(ctx, snapshot, newest_at);
        Passage::Adopted
    } else {
        let view = ClusterView::confirmed(snapshot, newest_at);
        stand_on(ctx, view.clone());
        withdraw(ctx, view)
    }
}

/// Handles an answer that the confirmed view is still the table's.
pub(crate) fn confirm(ctx: &mut Ctx, newest_at: Option<MonoTime>) -> Passage {
    let Some(base) = ctx.base.clone() else {
        return Passage::Known;
    };
    base.confirm(newest_at);
    match (&ctx.announced, newest_at) {
        (Some(announced), Some(sent)) if !announced.may_follow(base.version(), sent) => {
            withdraw(ctx, base)
        }
        _ => Passage::Known,
    }
}

/// Passes a snapshot that the member `from` told.
pub(crate) fn hear(
    ctx: &mut Ctx,
    from: SiloAddress,
    snapshot: Snapshot,
    witness: &Witness<'_>,
) -> Hearing {
    let snapshot = ctx.interned(snapshot);
    let Some(view) = &ctx.view else {
        return Hearing::NeedsRead;
    };
    let known = view.snapshot();
    if snapshot.table_id() != known.table_id() {
        return Hearing::NeedsRead;
    }
    if snapshot.version() < known.version() || is_same(&snapshot, known) {
        return Hearing::Known;
    }
    let leap = snapshot.version() - known.version();
    // Beyond the commits that the version row keeps, only the rows show that the table took another
    // path.
    let checked = if leap > RECENT_COMMITS as u64 {
        check_snapshot(known, &snapshot)
    } else {
        check_token(&known.token, &snapshot.version_row)
    };
    if checked.is_err() || leap == 0 || leap > MAX_LEAP {
        return Hearing::NeedsRead;
    }
    let changed = snapshot.changed_since(known);
    let changed = changed.as_deref();
    if has_risen(known, &snapshot, changed) {
        return Hearing::NeedsRead;
    }
    let concerns_me =
        changed.is_none_or(|changed| changed.iter().any(|silo| silo.same_endpoint(&ctx.me)));
    if (concerns_me && ends_me(ctx, &snapshot)) || is_doubtful(known, &snapshot, changed, witness) {
        if !ctx.passes_news_on() {
            return Hearing::NeedsRead;
        }
        ctx.keep(&snapshot);
        return Hearing::Doubtful;
    }
    let version = snapshot.version();
    ctx.keep(&snapshot);
    ctx.view = Some(ClusterView::new(snapshot));
    let at = ctx.now.mono;
    let mut announced = ctx.announced.take().unwrap_or(Announcement {
        first: (version, at),
        newest_at: at,
        by: Vec::new(),
    });
    announced.newest_at = at;
    if !announced.by.contains(&from) {
        announced.by.push(from);
    }
    ctx.announced = Some(announced);
    Hearing::Announced
}

/// Whether the version row alone can confirm the announced view: its author says which rows the
/// table has, and sent those.
pub(crate) fn may_be_confirmed_by_its_version_row(ctx: &Ctx) -> bool {
    ctx.announced().is_some_and(|(view, _)| {
        let told = view.snapshot();
        told.version_row.content_hash() == Some(told.rows.content_hash())
    })
}

/// The announced view as the table has it, if the version row that was read shows that it does.
pub(crate) fn as_the_table_has_it(ctx: &Ctx, read: RowRead) -> Option<Snapshot> {
    let (view, _) = ctx.announced()?;
    let (told, row) = (view.snapshot(), read.version_row?);
    let is_told = read.token.same_commit(&told.token)
        && row.is_same_without_secret(&told.version_row)
        && row.content_hash() == Some(told.rows.content_hash());
    is_told.then(|| Snapshot::new(read.token, row, told.rows.clone()))
}

/// Whether what was announced is what the table has, to the last byte: its author may have chosen
/// rows with the same digest.
fn is_same(read: &Snapshot, announced: &Snapshot) -> bool {
    read.token.same_commit(&announced.token)
        && read.rows == announced.rows
        && read
            .version_row
            .is_same_without_secret(&announced.version_row)
}

/// Whether a silo that `known` has as Dead is alive again. `changed` are the silos whose rows may differ;
/// none: all.
fn has_risen(known: &Snapshot, now: &Snapshot, changed: Option<&[SiloAddress]>) -> bool {
    let dead = |e: &MembershipEntry| e.status == SiloStatus::Dead;
    let is_back = |s: &SiloAddress| now.rows.get(s).is_some_and(|e| !dead(e));
    match changed {
        Some(changed) => changed
            .iter()
            .any(|s| known.rows.get(s).is_some_and(dead) && is_back(s)),
        None => known.rows.entries().any(|e| dead(e) && is_back(&e.address)),
    }
}

/// Whether a death in `now` needs a look at the table before it is published: one that the votes in
/// its row do not justify, or one for another cause of a silo that has just answered. `changed` are the
/// silos whose rows may differ; none: all.
fn is_doubtful(
    known: &Snapshot,
    now: &Snapshot,
    changed: Option<&[SiloAddress]>,
    witness: &Witness<'_>,
) -> bool {
    let alive = |s: &SiloAddress| {
        known
            .rows
            .get(s)
            .is_some_and(|e| e.status != SiloStatus::Dead)
    };
    let doubtful = |silo: &SiloAddress| {
        let Some(entry) = now.rows.get(silo) else {
            return (witness.heard)(silo);
        };
        match entry.death.as_ref().map(|d| &d.cause) {
            _ if entry.status != SiloStatus::Dead => false,
            Some(CauseOfDeath::Voted) => {
                // An accuser may have become Active since, or have died in the same commit.
                let may_accuse = |s: &SiloAddress| {
                    let active = |at: &Snapshot| {
                        at.rows
                            .get(s)
                            .is_some_and(|e| e.status == SiloStatus::Active)
                    };
                    s != silo && (active(known) || active(now))
                };
                let votes: BTreeSet<_> = entry
                    .suspicions
                    .iter()
                    .map(|v| v.accuser)
                    .filter(may_accuse)
                    .map(|s| s.endpoint())
                    .collect();
                votes.len() < usize::try_from(needed_votes(known, witness.stale)).unwrap_or(1)
            }
            _ => (witness.heard)(silo),
        }
    };
    match changed {
        Some(changed) => changed.iter().filter(|s| alive(s)).any(doubtful),
        None => known
            .rows
            .entries()
            .filter(|e| e.status != SiloStatus::Dead)
            .any(|e| doubtful(&e.address)),
    }
}

/// Whether a snapshot says that this silo has ended: its row is Dead or missing, or a newer process
/// has its address. A row that cannot be decoded is damaged and not an end (clause T12).
pub(crate) fn ends_me(ctx: &Ctx, snapshot: &Snapshot) -> bool {
    if ctx.status == SiloStatus::Created {
        return false;
    }
    let gone = match snapshot.rows.get(&ctx.me) {
        Some(mine) => mine.status == SiloStatus::Dead,
        None => snapshot.rows.by_key(&ctx.me.row_key()).is_none(),
    };
    gone || snapshot
        .rows
        .at_endpoint(ctx.me.endpoint())
        .next_back()
        .is_some_and(|e| e.address.is_successor_of(&ctx.me))
}

/// Makes a snapshot of the table the confirmed view and the published one.
fn install(ctx: &mut Ctx, snapshot: Snapshot, newest_at: Option<MonoTime>) {
    let view = ClusterView::confirmed(snapshot, newest_at);
    stand_on(ctx, view.clone());
    publish(ctx, view);
}

/// Drops the announced view, which the table contradicts, for `view`. Returns its version.
fn withdraw(ctx: &mut Ctx, view: ClusterView) -> Passage {
    let version = ctx.version();
    let now = ctx.mono();
    ctx.kept.forget_from(view.version());
    ctx.keep(view.snapshot());
    for silo in ctx.announced.take().map_or_else(Vec::new, |a| a.by) {
        ctx.distrust.begin(silo, now);
    }
    publish(ctx, view);
    Passage::Withdrawn(version)
}

/// Publishes a confirmed view.
fn publish(ctx: &mut Ctx, view: ClusterView) {
    ctx.announced = None;
    ctx.view = Some(view);
}

/// Makes this the confirmed view: the lists of members and the settings follow it.
fn stand_on(ctx: &mut Ctx, view: ClusterView) {
    let now = ctx.mono();
    // A vote that is new to this silo appeared just now only if this silo knew the table shortly
    // before.
    let expiry = ctx.settings().death_vote_expiration;
    let watching = ctx.base.is_some() && ctx.contact.is_some_and(|t| now.since(t) <= expiry);
    let appeared = watching.then_some(now);
    let snapshot = view.snapshot();
    let changed = ctx
        .base
        .as_ref()
        .and_then(|base| snapshot.changed_since(base.snapshot()));
    let lists = ctx.views.as_ref().and_then(|v| v.lists(snapshot));
    match changed {
        Some(changed) => ctx
            .members
            .follow(&snapshot.rows, &changed, appeared, lists),
        None => ctx.members.rebuild(&snapshot.rows, appeared, lists),
    }
    if let Some(views) = &ctx.views {
        views.keep(snapshot, ctx.members.lists());
    }
    ctx.keep(snapshot);
    ctx.base = Some(view);
    ctx.follow_settings();
}

/// The gate alone, for the benchmarks of this crate; not part of the API.
#[doc(hidden)]
#[derive(Debug)]
pub struct Gate(Ctx);

impl Gate {
    /// Creates a gate that no snapshot has passed.
    #[must_use]
    pub fn new(setup: super::Setup) -> Self {
        Self(Ctx::new(setup))
    }

    /// Passes a snapshot that was read from the table; returns whether it is now the view.
    pub fn adopt_read(&mut self, snapshot: Snapshot) -> bool {
        pass(&mut self.0, snapshot, Source::Read, None) == Passage::Adopted
    }
}
