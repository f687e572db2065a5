//! The one gate through which views enter: same table, larger version, consistent with the recent commits, nobody returned from the dead.
//! Invariants P1 to P3, clause T16.

use super::context::Ctx;
use crate::model::version::RECENT_COMMITS;
use crate::{
    Discontinuity, MembershipEntry, SiloAddress, SiloStatus, Snapshot, check_snapshot, check_token,
};

/// A message may move the version by so much; more is confirmed by a read.
const MAX_LEAP: u64 = 1000;

/// Where a snapshot comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Read from the table.
    Read,
    /// Made by a commit of mine that the table acknowledged.
    Commit,
    /// Told by another silo.
    Message,
}

/// What became of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    /// It is the view now.
    Adopted,
    /// Nothing new.
    Known,
    /// Told by a message, and too far-reaching to believe without a read.
    NeedsRead,
    /// Not consistent with what I know.
    Broken(Discontinuity),
    /// A message that makes no sense.
    Nonsense,
}

pub(crate) fn pass(ctx: &mut Ctx, snapshot: Snapshot, source: Source) -> Passage {
    let mut changed = None;
    if let Some(view) = &ctx.view {
        let known = view.snapshot();
        if source == Source::Message && snapshot.table_id() != known.table_id() {
            return Passage::NeedsRead;
        }
        if snapshot.version() < known.version() {
            // Others may have told me more while the read was under way. A table that went back is told by the read itself, which names
            // the version I knew when it began. Another table is another table whatever its version is.
            let same = snapshot.table_id() == known.table_id();
            return if same {
                Passage::Known
            } else {
                Passage::Broken(Discontinuity::Replaced)
            };
        }
        if snapshot.version() == known.version()
            && snapshot.token.same_commit(&known.token)
            && snapshot.rows.digest() == known.rows.digest()
        {
            return Passage::Known;
        }
        let leap = snapshot.version() - known.version();
        let checked = match source {
            Source::Read => check_snapshot(known, &snapshot),
            // Further back than the version row remembers, only the rows can tell a table that went another way.
            Source::Message if leap > RECENT_COMMITS as u64 => check_snapshot(known, &snapshot),
            Source::Commit | Source::Message => check_token(&known.token, &snapshot.version_row),
        };
        match (checked, source) {
            (Ok(()), _) => {}
            (Err(_), Source::Message) => return Passage::NeedsRead,
            (Err(d), _) => return Passage::Broken(d),
        }
        if source == Source::Message && (leap == 0 || leap > MAX_LEAP) {
            return Passage::NeedsRead;
        }
        changed = snapshot.changed_since(known);
        let concerns_me = changed
            .as_ref()
            .is_none_or(|changed| changed.iter().any(|silo| silo.same_endpoint(&ctx.me)));
        if source == Source::Message && concerns_me && ends_me(ctx, &snapshot) {
            return Passage::NeedsRead;
        }
        let dead = |e: &MembershipEntry| e.status == SiloStatus::Dead;
        let is_back = |s: &SiloAddress| snapshot.rows.get(s).is_some_and(|e| !dead(e));
        let risen = match &changed {
            Some(changed) => changed
                .iter()
                .any(|s| known.rows.get(s).is_some_and(dead) && is_back(s)),
            None => known.rows.entries().any(|e| dead(e) && is_back(&e.address)),
        };
        if risen {
            return if source == Source::Message {
                Passage::Nonsense
            } else {
                Passage::Broken(Discontinuity::RolledBack)
            };
        }
    } else if source == Source::Message {
        return Passage::NeedsRead;
    }
    install(ctx, snapshot, changed.as_deref());
    Passage::Adopted
}

/// Whether a snapshot says that I am gone: my row is Dead or removed, or a newer process has my address. A row of mine that cannot be
/// decoded is damaged, not gone (clause T12).
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

fn install(ctx: &mut Ctx, snapshot: Snapshot, changed: Option<&[SiloAddress]>) {
    let now = ctx.mono();
    // A vote that is new to me appeared just now only if I knew the table as it was shortly before.
    let expiry = ctx.settings().death_vote_expiration;
    let watching = ctx.view.is_some() && ctx.contact.is_some_and(|t| now.since(t) <= expiry);
    let appeared = watching.then_some(now);
    match changed {
        Some(changed) => ctx.members.follow(&snapshot.rows, changed, appeared),
        None => ctx.members.rebuild(&snapshot.rows, appeared),
    }
    let view = ctx.make_view(snapshot);
    ctx.view = Some(view);
    ctx.follow_settings();
}

/// The gate on its own, for this crate's benchmarks; no part of the API.
#[doc(hidden)]
#[derive(Debug)]
pub struct Gate(Ctx);

impl Gate {
    /// A gate that nothing has passed yet.
    #[must_use]
    pub fn new(setup: super::Setup) -> Self {
        Self(Ctx::new(setup))
    }

    /// What happens to a snapshot that was read from the table; says whether it is the view now.
    pub fn adopt_read(&mut self, snapshot: Snapshot) -> bool {
        pass(&mut self.0, snapshot, Source::Read) == Passage::Adopted
    }
}
