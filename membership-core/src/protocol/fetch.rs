//! A newcomer's first view, without reading the rows from the table: the version row comes from the
//! table, and the rows from a member, in parts. Nobody needs to be trusted for that: the rows are
//! taken only if they have the hash that the version row names. Whatever goes wrong, the table is read:
//! by one newcomer after the other, where many find that those are gone that wrote last. The first one
//! that has joined then answers the others.
//!
//! A newcomer whose first commit met a conflict fetches the changes since in the same way.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use super::context::Ctx;
use super::io::LinkId;
use super::kept::Shown;
use super::message::Message;
use super::observation::Learned;
use super::timers::Timer;
use crate::{Delta, MonoTime, Row, Rows, SiloAddress, SiloStatus, Snapshot};

/// How long a part of the answer may take; then somebody else is asked.
const PATIENCE: Duration = Duration::from_millis(300);
/// How long a silo is left alone that has an older version than the table.
const SOON: Duration = Duration::from_millis(30);
/// How many questions and looks at the version row there are before the table is read.
const TRIES: u32 = 6;
/// If nobody can be asked, a table with so few rows is read. Otherwise not: many may start at this
/// moment, and then the table has all their rows before the read is done.
const FEW: u64 = 3;
/// How often a silo may leave a question unanswered before it counts as gone.
const UNANSWERED: u32 = 2;
/// The shortest time between two looks at the version row while nobody is there who could be asked, and
/// how much longer it may be.
const LOOK: Duration = Duration::from_millis(100);
/// After so many looks twice as many newcomers read the table as before.
const DOUBLES: u32 = 2;
/// How many others a silo names that does not send the rows itself.
const NAMED: usize = 4;

/// The part of an answer that one message carries.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) from: Option<u64>,
    pub(crate) version: u64,
    pub(crate) part: u32,
    pub(crate) parts: u32,
    pub(crate) rows: Vec<Row>,
    pub(crate) removed: Vec<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Fetch {
    /// Names the question that is open.
    nonce: u64,
    asked: Option<SiloAddress>,
    /// Whom to ask next.
    others: Vec<SiloAddress>,
    tries: u32,
    /// How many questions each silo has left unanswered, or [`UNANSWERED`] if it is gone.
    silent: BTreeMap<SiloAddress, u32>,
    /// How often nobody was there.
    looks: u32,
    /// What follows when the time is over: a look at the version row.
    looks_next: bool,
    parts: BTreeMap<u32, Part>,
    /// What was received, whatever it is, and the version that it is said to be.
    have: Option<(u64, Rows)>,
    /// Whether a member has sent all rows, and not the changes alone.
    has_all: bool,
    /// Rows that the table has shown, until it answers again, and when it was asked.
    proven: Option<(Snapshot, MonoTime)>,
}

/// What a newcomer does next.
#[derive(Debug)]
pub(crate) enum Next {
    Wait,
    /// Look at the version row again: the rows are of a later one, or somebody else may have written.
    Look,
    /// Read the table.
    Read,
    /// These are the rows of the table.
    Take(Snapshot),
    /// These were the rows of the table when it was asked at this time. It has moved on since.
    TakeOlder(Snapshot, MonoTime),
}

impl Fetch {
    pub(crate) fn clear(&mut self, ctx: &mut Ctx) {
        *self = Self::default();
        ctx.timers.clear(Timer::Fetch);
    }

    /// The table has shown its version row. `known` is the confirmed view, if there is one.
    pub(crate) fn on_shown(
        &mut self,
        ctx: &mut Ctx,
        shown: &Shown,
        known: Option<&Snapshot>,
    ) -> Next {
        if shown.row.content_hash().is_none() {
            return Next::Read;
        }
        if self.have.is_none() {
            self.have = known.map(|known| (known.version(), known.rows.clone()));
            self.asked = None;
        }
        if let Some(taken) = self.taken(shown) {
            return Next::Take(taken);
        }
        if let Some((older, sent)) = self.proven.take()
            && known.is_some_and(|known| known.version() < older.version())
        {
            return Next::TakeOlder(older, sent);
        }
        // Whoever has sent rows of a later version has the changes since, too.
        match self.asked.filter(|_| self.have.is_some()) {
            Some(again) => self.ask(ctx, again, shown),
            None => self.ask_next(ctx, shown),
        }
    }

    /// How what was received came.
    pub(crate) const fn how(&self) -> Learned {
        match self.has_all {
            true => Learned::Rows,
            false => Learned::Changes,
        }
    }

    /// Those that are gone, as this silo has found.
    pub(crate) fn gone(&self) -> impl Iterator<Item = SiloAddress> {
        let gone = self.silent.iter().filter(|(_, n)| **n >= UNANSWERED);
        gone.map(|(silo, _)| *silo)
    }

    fn is_gone(&self, silo: &SiloAddress) -> bool {
        self.silent.get(silo).is_some_and(|n| *n >= UNANSWERED)
    }

    /// The rows, if what was received is what the table has.
    fn taken(&mut self, shown: &Shown) -> Option<Snapshot> {
        let (version, rows) = self.have.as_ref()?;
        let is_it = *version == shown.version();
        let taken = shown.with_rows(rows).filter(|_| is_it);
        if taken.is_none() && *version >= shown.version() {
            // They are others, whatever they are.
            self.have = None;
        }
        taken
    }

    fn ask_next(&mut self, ctx: &mut Ctx, shown: &Shown) -> Next {
        self.asked = None;
        let asks = |s: &SiloAddress| s.endpoint() != ctx.identity.advertise && !self.is_gone(s);
        let mut others: Vec<SiloAddress> = self.others.iter().copied().filter(asks).collect();
        let mut last = None;
        if others.is_empty() {
            // Those that wrote last have the newest rows, or name others. The last one comes first: the
            // others may be gone for longer.
            let writers = shown.row.recent.iter().filter_map(|r| r.committer);
            let writers: BTreeSet<SiloAddress> = writers.filter(asks).collect();
            others = writers.into_iter().collect();
            last = shown.row.recent.last().and_then(|r| r.committer);
        }
        if others.is_empty() && shown.row.row_count <= FEW {
            return Next::Read;
        }
        if others.is_empty() {
            return self.look_again(ctx, shown);
        }
        let last = others.iter().position(|s| Some(*s) == last);
        let at = last.unwrap_or_else(|| ctx.below(others.len()));
        let next = others.swap_remove(at);
        self.others = others;
        self.ask(ctx, next, shown)
    }

    /// Nobody is there who wrote: all may have started together. Few of them read the table at a time,
    /// and the others see soon who has joined.
    fn look_again(&mut self, ctx: &mut Ctx, shown: &Shown) -> Next {
        self.looks += 1;
        if is_a_reader(ctx, shown, self.looks) {
            return Next::Read;
        }
        self.looks_next = true;
        let wait = LOOK + ctx.jitter(LOOK);
        ctx.set_timer(Timer::Fetch, wait);
        Next::Wait
    }

    fn ask(&mut self, ctx: &mut Ctx, silo: SiloAddress, shown: &Shown) -> Next {
        self.tries += 1;
        if self.tries > TRIES {
            return Next::Read;
        }
        self.nonce = ctx.random();
        self.asked = Some(silo);
        self.parts.clear();
        let (nonce, want) = (self.nonce, shown.version());
        let have = self.have.as_ref().map_or(0, |(version, _)| *version);
        ctx.send_to(silo, Message::AskRows { nonce, have, want });
        ctx.set_timer(Timer::Fetch, ctx.patience(PATIENCE));
        Next::Wait
    }

    /// Nothing has come for a while.
    pub(crate) fn on_timer(&mut self, ctx: &mut Ctx, shown: &Shown) -> Next {
        if std::mem::take(&mut self.looks_next) {
            return Next::Look;
        }
        if let Some(silo) = self.asked {
            *self.silent.entry(silo).or_default() += 1;
        }
        self.ask_next(ctx, shown)
    }

    /// Whether this is the question that is open, and was asked there.
    pub(crate) fn asks(&self, endpoint: SocketAddr, nonce: Option<u64>) -> bool {
        self.asked.is_some_and(|silo| silo.endpoint() == endpoint)
            && nonce.is_none_or(|nonce| nonce == self.nonce)
    }

    /// The silo that was asked is gone: its machine refuses connections or has closed one, or another
    /// process is at its address.
    pub(crate) fn on_gone(&mut self, ctx: &mut Ctx, shown: &Shown) -> Next {
        if let Some(silo) = self.asked {
            self.silent.insert(silo, UNANSWERED);
            // That cost no time.
            self.tries = self.tries.saturating_sub(1);
        }
        self.ask_next(ctx, shown)
    }

    /// The silo that was asked names others.
    pub(crate) fn on_others(
        &mut self,
        ctx: &mut Ctx,
        nonce: u64,
        silos: &[SiloAddress],
        shown: &Shown,
    ) -> Next {
        if nonce != self.nonce || self.asked.is_none() {
            return Next::Wait;
        }
        let named = silos.iter().take(NAMED).copied();
        self.others = named
            .filter(|s| s.endpoint() != ctx.identity.advertise && Some(*s) != self.asked)
            .collect();
        self.ask_next(ctx, shown)
    }

    pub(crate) fn on_part(
        &mut self,
        ctx: &mut Ctx,
        from: SiloAddress,
        nonce: u64,
        part: Part,
        shown: &Shown,
    ) -> Next {
        if nonce != self.nonce || self.asked != Some(from) || part.part >= part.parts {
            return Next::Wait;
        }
        let fits = |row: &Row| row.size() <= ctx.limits.bytes_per_row;
        let taken: usize = self.parts.values().map(|p| p.rows.len()).sum();
        let first = self.parts.values().next();
        let is_of_it = first
            .is_none_or(|p| (p.from, p.version, p.parts) == (part.from, part.version, part.parts));
        let is_too_much = taken + part.rows.len() > ctx.limits.rows
            || usize::try_from(part.parts).unwrap_or(usize::MAX) > ctx.limits.rows;
        if !is_of_it || is_too_much || !part.rows.iter().all(fits) {
            return self.ask_next(ctx, shown);
        }
        let (all, version) = (part.parts, part.version);
        self.parts.insert(part.part, part);
        if self.parts.len() < usize::try_from(all).unwrap_or(usize::MAX) {
            ctx.set_timer(Timer::Fetch, ctx.patience(PATIENCE));
            return Next::Wait;
        }
        let parts = std::mem::take(&mut self.parts);
        self.nonce = ctx.random();
        let base = match parts.values().next().and_then(|p| p.from) {
            None => {
                self.has_all = true;
                Rows::new()
            }
            // Only upon exactly what it starts from.
            Some(from) => match self.have.take().filter(|(have, _)| *have == from) {
                Some((_, rows)) => rows,
                None => return self.ask_next(ctx, shown),
            },
        };
        let (mut rows, parts): (Rows, Vec<Part>) = (base, parts.into_values().collect());
        for key in parts.iter().flat_map(|p| &p.removed) {
            rows.remove(key);
        }
        for row in parts.into_iter().flat_map(|p| p.rows) {
            rows.insert(row);
        }
        self.have = Some((version, rows));
        if version > shown.version() {
            self.tries += 1;
            return if self.tries > TRIES {
                Next::Read
            } else {
                ctx.set_timer(Timer::Fetch, PATIENCE * 2);
                Next::Look
            };
        }
        if version < shown.version() {
            // Those that wrote last have the changes since.
            self.others.clear();
            self.asked = None;
            ctx.set_timer(Timer::Fetch, SOON);
            return Next::Wait;
        }
        match self.taken(shown) {
            // The sender may not be in this silo's view. Only the table changes that.
            Some(snapshot) if ctx.base.is_some() => {
                // If it moves on all the time, nobody has its last version for long enough.
                let keeps = ctx.variant.takes_older;
                self.proven = keeps.then_some((snapshot, shown.sent));
                Next::Look
            }
            Some(snapshot) => Next::Take(snapshot),
            None => self.ask_next(ctx, shown),
        }
    }
}

/// Whether this silo reads the rows, if nobody whom it asked for the `tries`th time knows them: at first
/// half a silo does in a cluster in which all others are in the same place, and then more and more.
pub(crate) fn is_a_reader(ctx: &mut Ctx, shown: &Shown, tries: u32) -> bool {
    let readers = 2u64.saturating_pow(tries / DOUBLES);
    ctx.random() % shown.row.row_count.saturating_mul(2).max(1) < readers
}

/// Sends the rows to a silo that asks for them, in parts; or names others, if this silo writes for
/// many. What the asker does with them rests on the version row that it has read itself.
pub(crate) fn serve(
    ctx: &mut Ctx,
    (link, by): (LinkId, SiloAddress),
    (nonce, have, want): (u64, u64, u64),
    is_busy: bool,
    may_serve: impl FnOnce() -> bool,
) {
    let Some(newest) = ctx.kept.newest() else {
        return;
    };
    let alive = &ctx.members.alive;
    // While this silo joins, those that were there before may all be gone: it names those that came
    // with it or later.
    let since = match ctx.status {
        SiloStatus::Active => 0,
        _ => ctx.confirmed_entry(&ctx.me).map_or(0, |e| e.written_at),
    };
    let came = |s: &SiloAddress| {
        ctx.confirmed_entry(s)
            .is_some_and(|e| e.written_at >= since)
    };
    let others = |s: &SiloAddress| *s != ctx.me && !s.same_endpoint(&by) && came(s);
    if is_busy && have == 0 && alive.iter().filter(|s| others(s)).count() >= NAMED {
        let mut silos: Vec<SiloAddress> = alive.iter().copied().filter(others).collect();
        while silos.len() > NAMED {
            let at = ctx.below(silos.len());
            silos.swap_remove(at);
        }
        return ctx.reply(link, by, Message::AskThem { nonce, silos });
    }
    let to = ctx.kept.at(want).unwrap_or(newest);
    // Whoever has nothing says 0. That is a version, too, which the founder of a cluster may have kept.
    let from = ctx.kept.at(have);
    let from = from.filter(|f| have != 0 && f.version() < to.version());
    // The changes since a version are small, and asked for once or twice.
    if from.is_none() && !may_serve() {
        return;
    }
    let (version, from, rows, removed) = match from {
        Some(from) => {
            let delta = Delta::between(from, to);
            (to.version(), delta.from, delta.rows, delta.removed)
        }
        None => (
            to.version(),
            None,
            to.rows.iter().cloned().collect(),
            Vec::new(),
        ),
    };
    let most = ctx.variant.part_bytes;
    let mut pieces: Vec<(Vec<Row>, Vec<String>)> = vec![(Vec::new(), Vec::new())];
    let mut size = 0;
    let mut room = |bytes: usize, pieces: &mut Vec<(Vec<Row>, Vec<String>)>| {
        if size > 0 && size + bytes > most {
            pieces.push((Vec::new(), Vec::new()));
            size = 0;
        }
        size += bytes;
    };
    for key in removed {
        room(key.len(), &mut pieces);
        if let Some(last) = pieces.last_mut() {
            last.1.push(key);
        }
    }
    for row in rows {
        room(row.size(), &mut pieces);
        if let Some(last) = pieces.last_mut() {
            last.0.push(row);
        }
    }
    let parts = u32::try_from(pieces.len()).unwrap_or(u32::MAX);
    for (part, (rows, removed)) in (0..).zip(pieces) {
        let message = Message::Rows {
            nonce,
            from,
            version,
            part,
            parts,
            rows,
            removed,
        };
        ctx.reply(link, by, message);
    }
}
