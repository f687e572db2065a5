//! The gate that every view must pass: same table, larger version, consistent with the recent
//! commits, no Dead silo alive again. Invariants P1 to P3, clause T16.

use super::context::Ctx;
use crate::model::version::RECENT_COMMITS;
use crate::{
    Discontinuity, MembershipEntry, SiloAddress, SiloStatus, Snapshot, check_snapshot, check_token,
};

/// Maximum increase of the version by a message; a larger one needs a read.
const MAX_LEAP: u64 = 1000;

/// The source of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Read from the table.
    Read,
    /// Made by a commit of this silo that the table acknowledged.
    Commit,
    /// Received from another silo.
    Message,
}

/// The result for a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    /// It is now the view.
    Adopted,
    /// It has nothing new.
    Known,
    /// It came in a message and changes too much to adopt without a read.
    NeedsRead,
    /// It is not consistent with the known view.
    Broken(Discontinuity),
    /// The message is invalid.
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
            // Messages may have moved the view while the read was under way. The read itself
            // reports a table that went back: it names the version that was known when it began. A
            // different table id is a different table at any version.
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
            // Beyond the commits that the version row keeps, only the rows show that the table took
            // another path.
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

fn install(ctx: &mut Ctx, snapshot: Snapshot, changed: Option<&[SiloAddress]>) {
    let now = ctx.mono();
    // A vote that is new to this silo appeared just now only if this silo knew the table shortly
    // before.
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
        pass(&mut self.0, snapshot, Source::Read) == Passage::Adopted
    }
}
