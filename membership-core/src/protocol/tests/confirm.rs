//! Views that the version row alone confirms, and a newcomer's rows from a member: whoever lies gets
//! nothing taken that the table does not have.

use super::super::fetch;
use super::super::io::{Input, LinkId, PeerIdentity};
use super::super::machine::Protocol;
use super::super::message::Header;
use super::super::timers::Timer;
use super::super::writer::Writer;
use super::*;
use crate::hooks::ProtocolVariant;
use crate::intent::{Action, Observed};
use crate::{ClusterView, CommitOutcome, CommitRequest, Conflict, Delta, Row, RowRead};

mod learned;
mod newcomer;

const LINK: LinkId = LinkId(4);

/// The table after one more commit, by silo 2.
fn next(
    base: &Snapshot,
    inserts: Vec<MembershipEntry>,
    updates: Vec<MembershipEntry>,
    removes: &[u8],
) -> Snapshot {
    let removes = removes.iter().map(|n| silo(*n).row_key());
    let id = commit_id(base.version() + 1);
    let (token, by) = (base.token.clone(), Some(silo(2)));
    let commit = CommitRequest::new(token, id, by, inserts, updates, removes).with_rows_of(base);
    commit.apply_to(base, commit.next_token(&[]))
}

/// Versions 5 to 9: each has one more Active silo, and silo 4 is gone at the end.
fn history() -> Vec<Snapshot> {
    let mut all = vec![next(
        &snapshot(4, actives([1, 2, 3])),
        actives([4]),
        vec![],
        &[],
    )];
    for n in 5..=7 {
        let last: Snapshot = all.last().unwrap().clone();
        all.push(next(&last, actives([n]), vec![], &[]));
    }
    let last: Snapshot = all.last().unwrap().clone();
    all.push(next(&last, actives([8]), vec![], &[4]));
    all
}

/// The answer to a read of the version row.
fn row_of(table: &Snapshot) -> RowRead {
    let mine = table.rows.row(&silo(1)).cloned();
    RowRead::new(table.token.clone(), mine, None).with_version_row(table.version_row.clone())
}

/// The same version with another silo 3, as somebody who lies would tell it.
fn lie(table: &Snapshot) -> Snapshot {
    let mut rows = table.rows.clone();
    let mut third = entry(silo(3), SiloStatus::Active);
    third.info.role = "king".to_owned();
    third.written_at = table.version();
    rows.insert(Row::encode(third));
    Snapshot::new(table.token.clone(), table.version_row.clone(), rows)
}

/// A silo with a change of its own to write, which has waited for others'.
fn writes(table: &Snapshot) -> Silo {
    let mut it = Silo::at(table);
    let evict = Action::Evict {
        silo: silo(2),
        by: "me".to_owned(),
        reason: "test".to_owned(),
    };
    it.0.writer.submit(&mut it.0.ctx, evict);
    pass_time(&mut it.0.ctx, secs(2));
    it
}

#[test]
fn nothing_is_committed_on_a_version_that_the_table_has_left() {
    let table = history();
    assert_eq!(writes(&table[0]).calls(), Some("commit"));
    let mut it = writes(&table[0]);
    it.sees(&table[1]);
    assert_ne!(it.calls(), Some("commit"), "that would be a conflict");
}

#[test]
fn after_a_conflict_the_rows_come_from_others() {
    let mut it = writes(&history()[0]);
    let none = Observed::default();
    it.0.writer.pump(&mut it.0.ctx, Vec::new(), &none);
    let call = it.0.ctx.out.drain(..).find_map(|e| match e {
        Effect::Commit { call, .. } => Some(call),
        _ => None,
    });
    let conflict = Ok(CommitOutcome::Conflict(Conflict::default()));
    it.0.writer
        .on_committed(&mut it.0.ctx, call.unwrap(), conflict);
    pass_time(&mut it.0.ctx, secs(4));
    assert_eq!(it.calls(), Some("version row"));
}

struct Silo(Protocol);

impl Silo {
    /// Without a view: it has not read the table yet.
    fn newcomer() -> Self {
        let variant = ProtocolVariant {
            scribe: true,
            kept_views: 3,
            part_bytes: 300,
            ..ProtocolVariant::STANDARD
        };
        let mut protocol = Protocol::with_variant(setup(), variant);
        protocol.ctx.now = ctx().now;
        Self(protocol)
    }

    /// Active, with this view from the table.
    fn at(table: &Snapshot) -> Self {
        let mut it = Self::newcomer();
        it.0.ctx.me = silo(1);
        it.0.ctx.status = SiloStatus::Active;
        believe(&mut it.0.ctx, table.clone());
        it
    }

    fn sees(&mut self, table: &Snapshot) {
        let sent = self.0.ctx.mono();
        pass_time(&mut self.0.ctx, ms(10));
        self.0.on_shown(sent, self.0.ctx.me, row_of(table));
    }

    fn hears(&mut self, from: u8, delta: Delta) {
        let from = silo(from);
        let header = Header {
            to: Some(silo(1)),
            cluster: self.0.ctx.fingerprint,
            ..Header::new(0, from, instance(from))
        };
        let peer = PeerIdentity::Proven(instance(from));
        self.0
            .receive(LINK, peer, &header, &Message::Delta(Box::new(delta)));
    }

    fn hears_step(&mut self, from: &Snapshot, to: &Snapshot) {
        self.hears(2, Delta::between(from, to));
    }

    /// The version that the table has confirmed, and that of the published view.
    fn versions(&self) -> (u64, u64) {
        (self.0.ctx.base_version(), self.0.ctx.version())
    }

    /// What it calls the table for next.
    fn calls(&mut self) -> Option<&'static str> {
        self.0.ctx.out.clear();
        let none = Observed::default();
        self.0.writer.pump(&mut self.0.ctx, Vec::new(), &none);
        let mut calls = self.0.ctx.out.drain(..).filter_map(|e| match e {
            Effect::Read { .. } => Some("rows"),
            Effect::ReadRow { .. } => Some("version row"),
            Effect::Commit { .. } => Some("commit"),
            _ => None,
        });
        calls.next_back()
    }

    fn asks(&mut self) -> Vec<(SiloAddress, Message)> {
        let all = sent(&mut self.0.ctx).into_iter();
        all.filter_map(|(to, m)| Some((to?, m))).collect()
    }

    fn waits(&mut self) {
        let at = self.0.ctx.timers.at(Timer::Fetch).unwrap();
        let by = at.since(self.0.ctx.mono());
        pass_time(&mut self.0.ctx, by);
        self.0.ctx.timers.clear(Timer::Fetch);
        self.0.on_fetch_timer();
    }

    /// Whom a newcomer has asked, and the number of the question.
    fn asked(&mut self) -> Option<(SiloAddress, u64, u64)> {
        self.asks().into_iter().find_map(|(to, m)| match m {
            Message::AskRows { nonce, have, .. } => Some((to, nonce, have)),
            _ => None,
        })
    }

    /// The answer of a silo that has these views.
    fn answers(
        &mut self,
        views: &[Snapshot],
        (from, nonce, have): (SiloAddress, u64, u64),
        want: u64,
    ) {
        for message in served(views, (nonce, have, want), false) {
            self.0.on_rows(from, &message);
        }
    }
}

/// What a silo with these views sends.
fn served(views: &[Snapshot], question: (u64, u64, u64), is_busy: bool) -> Vec<Message> {
    let mut it = Silo::at(&views[0]);
    for view in &views[1..] {
        believe(&mut it.0.ctx, view.clone());
    }
    it.0.ctx.out.clear();
    fetch::serve(&mut it.0.ctx, (LINK, silo(9)), question, is_busy, || true);
    sent(&mut it.0.ctx).into_iter().map(|(_, m)| m).collect()
}

#[test]
fn the_version_row_confirms_what_was_heard_before() {
    let table = history();
    let mut it = Silo::at(&table[0]);
    let sent = it.0.ctx.mono();
    pass_time(&mut it.0.ctx, ms(1));
    it.hears_step(&table[0], &table[1]);
    it.hears_step(&table[1], &table[2]);
    assert_eq!(it.versions(), (5, 7));
    it.0.on_shown(sent, it.0.ctx.me, row_of(&table[1]));
    assert_eq!(it.versions(), (6, 7), "the past of what was announced");
    assert!(it.0.ctx.is_announced());
    it.sees(&table[2]);
    assert_eq!(it.versions(), (7, 7));
    assert!(!it.0.ctx.is_announced() && it.calls().is_none());

    let mut it = Silo::at(&table[0]);
    it.hears_step(&table[0], &table[1]);
    it.hears_step(&table[1], &table[2]);
    pass_time(&mut it.0.ctx, ms(1));
    it.sees(&table[1]);
    assert_eq!(it.versions(), (6, 6), "the table had no version 7 then");
}

#[test]
fn the_version_row_confirms_what_is_heard_after() {
    let table = history();
    let mut it = Silo::at(&table[0]);
    it.sees(&table[2]);
    assert_eq!(it.versions(), (5, 5));
    it.hears_step(&table[0], &table[1]);
    assert_eq!(it.versions(), (5, 6));
    it.hears_step(&table[1], &table[2]);
    assert_eq!(it.versions(), (7, 7));
    let view = it.0.ctx.view.clone().unwrap();
    assert!(view.is_confirmed() && view.confirmed_at() < Some(it.0.ctx.mono()));
    assert!(it.calls().is_none());
}

/// The table bears more looks at one row than reads of all.
#[test]
fn looks_at_the_version_row_alone_may_be_more_frequent() {
    let between_looks = |per_row: Option<Duration>| {
        let mut it = Silo::at(&history()[0]);
        it.0.ctx.variant.look_per_row = per_row;
        let [first, second] = [(); 2].map(|()| {
            it.0.ctx.timers.clear(Timer::Hint);
            it.0.confirm_soon();
            it.0.ctx.timers.at(Timer::Hint).unwrap()
        });
        second.since(first)
    };
    let of_four_rows = between_looks(Some(ms(5))) - between_looks(Some(ms(2)));
    assert_eq!(of_four_rows, ms(3) * 4);
    assert!(between_looks(Some(ms(2))) < between_looks(None));
}

#[test]
fn rows_that_the_table_does_not_have_are_never_confirmed() {
    let table = history();
    for first in [true, false] {
        let mut it = Silo::at(&table[0]);
        let told = Delta::between(&table[0], &lie(&table[1]));
        if first {
            it.hears(3, told.clone());
            it.sees(&table[1]);
        } else {
            it.sees(&table[1]);
            it.hears(3, told.clone());
        }
        assert_eq!(it.0.ctx.base_version(), 5);
        assert_eq!(it.calls(), Some("rows"), "the table decides");
        believe_or_withdraw(&mut it, &table[1]);
        assert_eq!(it.versions(), (6, 6));
        let third = it.0.ctx.confirmed_entry(&silo(3)).unwrap();
        assert_eq!(third.info.role, "");
    }
}

fn believe_or_withdraw(it: &mut Silo, table: &Snapshot) {
    let sent = it.0.ctx.mono();
    pass(&mut it.0.ctx, table.clone(), Source::Read, Some(sent));
}

#[test]
fn another_version_row_for_the_same_rows_is_not_the_tables() {
    let table = history();
    let mut told = table[1].clone();
    let mut row = (*told.version_row).clone();
    row.settings.num_votes_for_death_declaration += 1;
    told.version_row = row.into();
    let mut it = Silo::at(&table[0]);
    it.hears_step(&table[0], &told);
    assert_eq!(it.versions(), (5, 6));
    it.sees(&table[1]);
    assert_eq!(it.versions(), (6, 6));
    let settings = &it
        .0
        .ctx
        .base
        .as_ref()
        .unwrap()
        .snapshot()
        .version_row
        .settings;
    assert_eq!(*settings, table[1].version_row.settings);
}

#[test]
fn a_delta_applies_only_upon_its_version_also_if_the_table_has_shown_where_it_leads() {
    let table = history();
    let mut it = Silo::at(&table[0]);
    it.sees(&table[2]);
    it.hears_step(&table[1], &table[2]);
    assert_eq!(it.versions(), (5, 5));
    let mut bad = Delta::between(&table[0], &table[2]);
    bad.digest ^= 1;
    it.hears(3, bad);
    assert_eq!(it.versions(), (5, 5));
    it.hears_step(&table[0], &table[2]);
    assert_eq!(it.versions(), (7, 7));
}

#[test]
fn a_silo_that_is_behind_asks_who_wrote_it_then_others_and_then_the_table() {
    let table = history();
    let mut it = Silo::at(&table[0]);
    it.sees(&table[2]);
    assert!(it.calls().is_none());
    let mut asked = Vec::new();
    let call = loop {
        it.waits();
        match it.asks().pop() {
            Some((silo, Message::AskDelta { have: 5, .. })) => asked.push(silo),
            Some(other) => panic!("{other:?}"),
            None => break it.calls(),
        }
    };
    assert_eq!(asked[0], silo(2), "the writer");
    assert!(asked.iter().all(|s| *s != silo(1)));
    assert!(asked.len() <= 10, "{asked:?}");
    assert_eq!(call, Some("rows"));
}

#[test]
fn news_that_overtakes_what_was_seen_causes_a_bounded_number_of_looks() {
    let table = history();
    let mut it = Silo::at(&table[0]);
    for _ in 0..16 {
        it.sees(&table[1]);
        let mut ahead = Silo::at(&table[0]);
        ahead.hears_step(&table[0], &table[3]);
        it.0.ctx.view = ahead.0.ctx.view.clone();
        it.0.match_shown();
        assert_eq!(it.calls(), Some("version row"));
        it.0.writer = Writer::default();
        it.0.ctx.view = it.0.ctx.base.clone();
    }
    it.sees(&table[1]);
    it.0.ctx.view = Some(ClusterView::new(table[3].clone()));
    it.0.match_shown();
    assert_eq!(it.calls(), Some("rows"));
}

#[test]
fn the_same_version_with_another_commit_makes_it_read_everything() {
    let table = history();
    let mut it = Silo::at(&table[1]);
    let mut other = row_of(&table[1]);
    let mut row = (*table[1].version_row).clone();
    row.settings.num_votes_for_death_declaration += 1;
    other.version_row = Some(row.into());
    let sent = it.0.ctx.mono();
    it.0.on_shown(sent, it.0.ctx.me, other);
    assert_eq!(it.calls(), Some("rows"));

    let mut it = Silo::at(&table[1]);
    it.sees(&table[0]);
    assert_eq!(it.calls(), Some("rows"), "an older version");

    let mut it = Silo::at(&table[1]);
    let mut gone = row_of(&table[2]);
    gone.row = None;
    it.0.on_shown(sent, it.0.ctx.me, gone);
    assert_eq!(it.calls(), Some("rows"), "this silo's row is gone");
}

#[test]
fn the_period_looks_at_the_version_row_unless_few_are_active_or_the_table_is_in_doubt() {
    let table = history();
    let mut it = Silo::at(&table[0]);
    it.0.refresh();
    assert_eq!(it.calls(), Some("version row"));
    let mut it = Silo::at(&next(
        &snapshot(4, actives([1, 2])),
        vec![],
        actives([2]),
        &[],
    ));
    it.0.refresh();
    assert_eq!(it.calls(), Some("rows"), "nobody could tell it");
    let mut it = Silo::at(&table[0]);
    it.0.ctx.suspended = true;
    it.0.refresh();
    assert_eq!(it.calls(), Some("rows"));
    let mut it = Silo::at(&table[0]);
    it.0.ctx.variant = ProtocolVariant::STANDARD;
    it.0.refresh();
    assert_eq!(it.calls(), Some("rows"), "the direct way");
}

#[test]
fn a_commit_of_many_rows_is_sent_as_its_changes() {
    let table = history();
    let many: Vec<MembershipEntry> = (20..100).flat_map(|n| actives([n])).collect();
    let after = next(&table[0], many, vec![], &[]);
    assert_eq!(ClusterView::new(after.clone()).delta_since(5), None);
    for scribe in [true, false] {
        let mut it = Silo::at(&table[0]);
        let before = it.0.ctx.base.clone();
        it.0.ctx.variant.scribe = scribe;
        believe(&mut it.0.ctx, after.clone());
        it.0.ctx.out.clear();
        it.0.disseminator.on_commit(&mut it.0.ctx, before.as_ref());
        let (_, message) = it.asks().pop().unwrap();
        let Message::Delta(delta) = message else {
            panic!("{message:?}");
        };
        assert_eq!(delta.from, scribe.then_some(5));
        assert_eq!(delta.resolve(Some(&table[0])).unwrap(), after);
    }
}

#[test]
fn a_hint_looks_at_the_version_row() {
    let table = history();
    let mut it = Silo::at(&table[0]);
    it.0.ctx.out.clear();
    let (now, mut out) = (it.0.ctx.now, Vec::new());
    it.0.handle(now, Input::Hint, &mut out);
    let row = |e: &Effect| matches!(e, Effect::ReadRow { .. });
    assert!(out.iter().any(row), "{out:?}");
}

#[test]
fn a_question_for_news_is_held_until_this_silo_knows() {
    let table = history();
    let mut it = Silo::at(&table[1]);
    it.0.ctx.out.clear();
    let ask = Message::AskDelta {
        table_id: Some(table[0].table_id()),
        have: 6,
    };
    for (asks, late) in [(3, false), (2, true)] {
        let from = silo(asks);
        let header = Header {
            to: Some(silo(1)),
            ..Header::new(it.0.ctx.fingerprint, from, instance(from))
        };
        let peer = PeerIdentity::Proven(instance(from));
        it.0.receive(LINK, peer, &header, &ask);
        assert!(sent(&mut it.0.ctx).is_empty());
        if !late {
            pass_time(&mut it.0.ctx, secs(2));
        }
    }
    it.0.row_is_in = true;
    it.sees(&table[2]);
    it.hears_step(&table[1], &table[2]);
    assert_eq!(it.versions(), (7, 7));
    let told = it.asks().into_iter();
    let told: Vec<_> = told
        .filter(|(_, m)| matches!(m, Message::Delta(_)))
        .collect();
    assert_eq!(told.len(), 1, "the first one waits no longer: {told:?}");
    assert_eq!(told[0].0, silo(2));
}
