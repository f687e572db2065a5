//! Looks at the table by its version row alone: a view that another silo has announced is confirmed by
//! the hash in it, and a silo that is behind asks others before it reads the rows. Where one silo
//! writes for many, hundreds of views follow each other within seconds, and a read of all rows by
//! everybody would grow with the square of the cluster.

use std::net::SocketAddr;
use std::time::Duration;

use super::fetch::{self, Next, Part};
use super::gate::Source;
use super::io::LinkId;
use super::kept::Shown;
use super::machine::Protocol;
use super::message::Message;
use super::notice::TableState;
use super::observation::Learned;
use super::timers::Timer;
use crate::intent::FEW;
use crate::{ReadAnswer, Recency, RowRead, SiloAddress, SiloStatus, Snapshot};

/// How long this silo waits for the news that the table has shown, and then for each that it asks.
const NEWS: Duration = Duration::from_millis(100);
/// How often it waits before it reads the rows in any case.
const WAITS: u32 = 10;
/// How often it looks again when the news has overtaken what it saw, before it reads the rows.
const OVERTAKEN: u32 = 16;

impl Protocol {
    /// Looks at the table: at the version row where that is enough, otherwise at all rows. `barrier` is
    /// for the latter.
    pub(super) fn look_at_the_table(&mut self, barrier: bool) {
        if self.row_is_enough() {
            self.writer.want_row();
        } else {
            self.writer.want_read(barrier);
        }
    }

    /// The periodic look. With few Active silos there may be nobody who could tell this one what has
    /// changed, and heartbeats matter more.
    pub(super) fn refresh(&mut self) {
        let barrier = self.ctx.is_announced();
        if self.ctx.is_active() && self.ctx.members.active.len() > FEW {
            if self.row_is_enough() {
                let silo = self.pulse.turn(&self.ctx);
                self.writer.want_row_of(silo);
            } else {
                self.writer.want_read(barrier);
            }
        } else if self.ctx.members.alive.len() > FEW {
            self.read_heartbeats(barrier);
        } else {
            self.writer.want_read(barrier);
        }
    }

    /// Reads the heartbeats. The rows come from others first, if they have changed: all silos may read
    /// at about the same time.
    pub(super) fn read_heartbeats(&mut self, barrier: bool) {
        if self.row_is_enough() {
            self.wants_heartbeats = true;
            self.writer.want_row();
        } else {
            self.writer.want_read(barrier);
        }
    }

    /// Whether a look at the table begins with its version row alone.
    pub(super) fn row_is_enough(&self) -> bool {
        let ctx = &self.ctx;
        ctx.variant.scribe
            && ctx.base.is_some()
            && ctx.table.state == TableState::Available
            && ctx.table.doubted.is_none()
            && !ctx.suspended
    }

    /// Handles the version row, as the table has it, with the row of this or another silo.
    pub(super) fn on_shown(&mut self, sent: crate::MonoTime, silo: SiloAddress, read: RowRead) {
        let is_mine = silo == self.ctx.me;
        if is_mine {
            self.row_is_in = read.row.is_some();
        } else {
            let counter = read.heartbeat.as_ref().map_or(0, |beat| beat.counter);
            self.pulse.on_look(sent, silo, counter);
        }
        let lives = |row: &crate::Row| row.entry().is_none_or(|e| e.status != SiloStatus::Dead);
        let is_gone = is_mine
            && self.ctx.status != SiloStatus::Created
            && !read.row.as_ref().is_some_and(lives);
        let Some(shown) = Shown::new(read, sent).filter(|_| !is_gone) else {
            return self.writer.want_read(true);
        };
        if self.ctx.table_doubted() || self.ctx.suspended || shown.row.deleting {
            return self.writer.want_read(true);
        }
        let newest_at = (self.ctx.reads == Recency::Linearizable).then_some(sent);
        let Some(base) = self.ctx.base.clone() else {
            return self.fetch_what_is_shown(shown);
        };
        if shown.row.table_id != base.table_id() || shown.version() < base.version() {
            return self.writer.want_read(true);
        }
        if shown.version() == base.version() {
            let known = &base.snapshot().version_row;
            let is_same =
                shown.token().same_commit(base.token()) && shown.row.is_same_without_secret(known);
            if !is_same {
                return self.writer.want_all();
            }
            if self.unchanged(newest_at) {
                self.looked(sent);
            }
            return;
        }
        let view = self.ctx.view.as_ref().map(crate::ClusterView::snapshot);
        let view = view.filter(|v| v.version() == shown.version());
        let kept = self.ctx.kept.at(shown.version()).or(view);
        let is_told = kept.is_some();
        let kept = kept.filter(|v| v.token.same_commit(shown.token()));
        let snapshot = kept.and_then(|v| shown.with_rows(&v.rows));
        match snapshot {
            Some(snapshot) => {
                self.ctx.kept.shown = Some(shown);
                self.take_shown(snapshot, Learned::Changes);
            }
            // Another silo has told something else, or nobody knows all rows.
            None if is_told || shown.row.content_hash().is_none() => self.writer.want_read(true),
            None if self.fetches_rows() => self.fetch_what_is_shown(shown),
            None if shown.version() < self.ctx.version() => self.overtaken(),
            None => {
                self.ctx.kept.shown = Some(shown);
                self.ctx.set_timer(Timer::Fetch, self.ctx.patience(NEWS));
            }
        }
    }

    /// Whether this silo gets what the table has shown as a newcomer does: its row is not in the table,
    /// and nobody sends it news.
    pub(super) fn fetches_rows(&self) -> bool {
        self.ctx.base.is_none() || (self.ctx.status == SiloStatus::Created && !self.row_is_in)
    }

    fn fetch_what_is_shown(&mut self, shown: Shown) {
        let known = self.ctx.base.as_ref().map(crate::ClusterView::snapshot);
        let known = known.cloned();
        let next = self.fetch.on_shown(&mut self.ctx, &shown, known.as_ref());
        self.ctx.kept.shown = Some(shown);
        self.fetches(next);
    }

    /// The machine at this endpoint refuses connections, or has closed one; or another process there
    /// answers to this question. A message that failed otherwise says nothing: its receiver may be busy.
    pub(super) fn on_gone(&mut self, endpoint: SocketAddr, nonce: Option<u64>) -> bool {
        if !self.ctx.variant.scribe {
            return false;
        }
        let mut asked = false;
        if let Some(shown) = self.ctx.kept.shown.clone()
            && self.fetch.asks(endpoint, nonce)
            && self.fetches_rows()
        {
            asked = true;
            let next = self.fetch.on_gone(&mut self.ctx, &shown);
            self.fetches(next);
        }
        if nonce.is_none()
            && let Some(silo) = self.asked_for_news.take_if(|s| s.endpoint() == endpoint)
        {
            self.writer.is_gone(&self.ctx, silo);
            if self.ctx.timers.is_set(Timer::Fetch) {
                self.on_fetch_timer();
            }
        }
        match nonce {
            Some(nonce) => asked |= self.writer.on_not_me(&mut self.ctx, endpoint, nonce),
            None => self.writer.on_gone(&mut self.ctx, endpoint),
        }
        asked
    }

    /// Takes a view whose rows are those of the version row that the table has shown. `how` is how the
    /// rows came to this silo.
    pub(super) fn take_shown(&mut self, snapshot: Snapshot, how: Learned) {
        let Some(sent) = self.ctx.kept.shown.take().map(|s| s.sent) else {
            return;
        };
        let newest_at = (self.ctx.reads == Recency::Linearizable).then_some(sent);
        if self.adopt(snapshot, Source::Read, newest_at, how) && !self.ended {
            self.looked(sent);
        }
    }

    fn looked(&mut self, sent: crate::MonoTime) {
        self.ctx.contacted(sent);
        (self.waited, self.overtaken) = (0, 0);
        if std::mem::take(&mut self.wants_heartbeats) {
            self.writer.want_read(false);
        }
        self.ended_a_look();
        if !self.ctx.timers.is_set(Timer::Refresh) {
            self.arm_refresh();
        }
    }

    /// What the table has shown is known, or does not matter any more.
    pub(super) fn ended_a_look(&mut self) {
        let version = self.ctx.base_version();
        let is_known = |s: &mut Shown| s.version() <= version;
        if self.ctx.kept.shown.take_if(is_known).is_some() {
            self.ctx.timers.clear(Timer::Fetch);
        }
    }

    /// Another silo has announced something: it may be what the table has shown, or later.
    pub(super) fn match_shown(&mut self) {
        let shown = self.ctx.kept.shown.as_ref();
        if shown.is_some_and(|s| s.version() < self.ctx.version()) {
            self.ctx.kept.shown = None;
            self.ctx.timers.clear(Timer::Fetch);
            self.overtaken();
        }
    }

    fn overtaken(&mut self) {
        self.overtaken += 1;
        if self.overtaken > OVERTAKEN {
            self.overtaken = 0;
            self.writer.want_read(true);
        } else {
            self.writer.want_row();
        }
    }

    pub(super) fn on_fetch_timer(&mut self) {
        let Some(shown) = self.ctx.kept.shown.clone() else {
            return;
        };
        if self.fetches_rows() {
            let next = self.fetch.on_timer(&mut self.ctx, &shown);
            return self.fetches(next);
        }
        self.waited += 1;
        // Whoever made it may have died before anybody else knew it. Then few read the rows, and answer
        // those that have asked them.
        let reads = self.waited > WAITS
            || (self.waited > 1 && fetch::is_a_reader(&mut self.ctx, &shown, self.waited));
        let Some(silo) = self.who_may_know(&shown).filter(|_| !reads) else {
            self.waited = 0;
            self.asked_for_news = None;
            self.ctx.kept.shown = None;
            return self.writer.want_read(true);
        };
        let table_id = Some(shown.row.table_id);
        let have = self.ctx.version();
        self.asked_for_news = Some(silo);
        self.ctx.send_to(silo, Message::AskDelta { table_id, have });
        self.ctx.set_timer(Timer::Fetch, self.ctx.patience(NEWS));
    }

    /// First the silo that wrote it, then anybody.
    fn who_may_know(&mut self, shown: &Shown) -> Option<SiloAddress> {
        let now = self.ctx.mono();
        let ctx = &mut self.ctx;
        let writer = shown.row.recent.last().and_then(|r| r.committer);
        let writer = writer.filter(|_| self.waited == 1);
        let courier = &self.writer;
        let is_fit = |ctx: &super::context::Ctx, silo: &SiloAddress| {
            *silo != ctx.me
                && ctx.members.instance(silo).is_some()
                && !ctx.distrust.has(silo, now)
                && !courier.is_avoided(now, silo)
        };
        if let Some(writer) = writer.filter(|s| is_fit(ctx, s)) {
            return Some(writer);
        }
        for _ in 0..4 {
            let at = ctx.below(ctx.members.alive.len());
            let silo = ctx.members.alive.get(at).copied();
            if let Some(silo) = silo.filter(|s| is_fit(ctx, s)) {
                return Some(silo);
            }
        }
        None
    }

    /// A newcomer's rows, or where else to ask for them.
    pub(super) fn on_rows(&mut self, from: SiloAddress, body: &Message) {
        let Some(shown) = self.ctx.kept.shown.clone() else {
            return;
        };
        let (ctx, fetch) = (&mut self.ctx, &mut self.fetch);
        let next = match body {
            Message::AskThem { nonce, silos } => fetch.on_others(ctx, *nonce, silos, &shown),
            Message::Rows {
                nonce,
                from: since,
                version,
                part,
                parts,
                rows,
                removed,
            } => {
                let part = Part {
                    from: *since,
                    version: *version,
                    part: *part,
                    parts: *parts,
                    rows: rows.clone(),
                    removed: removed.clone(),
                };
                fetch.on_part(ctx, from, *nonce, part, &shown)
            }
            _ => Next::Wait,
        };
        self.fetches(next);
    }

    fn fetches(&mut self, next: Next) {
        if !matches!(next, Next::Wait | Next::Look) {
            // Whoever is gone writes nothing, either.
            for silo in self.fetch.gone() {
                self.writer.is_gone(&self.ctx, silo);
            }
        }
        match next {
            Next::Wait => {}
            Next::Look => self.writer.want_row(),
            Next::Read => {
                self.fetch.clear(&mut self.ctx);
                self.ctx.kept.shown = None;
                self.writer.want_read(false);
            }
            Next::Take(snapshot) => {
                if let Some(sent) = self.ctx.kept.shown.take().map(|s| s.sent) {
                    self.take_fetched(snapshot, sent);
                } else {
                    self.fetch.clear(&mut self.ctx);
                }
            }
            Next::TakeOlder(snapshot, sent) => {
                self.ctx.kept.shown = None;
                self.take_fetched(snapshot, sent);
            }
        }
    }

    /// Takes the rows that the table had when it was asked at this time.
    fn take_fetched(&mut self, snapshot: Snapshot, sent: crate::MonoTime) {
        let how = self.fetch.how();
        self.fetch.clear(&mut self.ctx);
        let newest = self.ctx.reads == Recency::Linearizable;
        let answer = ReadAnswer::Snapshot {
            snapshot,
            heartbeats: None,
        };
        self.on_read(sent, newest, answer, how);
    }

    /// Sends the rows that a silo asks for, or names others.
    pub(super) fn tell_rows(&mut self, link: LinkId, by: SiloAddress, question: (u64, u64, u64)) {
        // A silo that has not read that its row is in may be named already.
        let fit = self.ctx.status <= SiloStatus::Active;
        let may = self.ctx.variant.scribe && fit && !self.ctx.suspended && !self.pause.is_silent();
        let (now, news) = (self.ctx.mono(), &mut self.disseminator);
        if may {
            let is_busy = self.writer.writes_for_others();
            let may_serve = || news.may_serve(now, link);
            fetch::serve(&mut self.ctx, (link, by), question, is_busy, may_serve);
        }
    }
}
