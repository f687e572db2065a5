//! How each view came is counted, once.

use super::super::super::observation::Learned;
use super::super::super::writer::Outcome;
use super::*;
use crate::ReadAnswer;

fn learned(it: &mut Silo) -> Vec<(u64, Learned)> {
    let all = observed(&it.0.ctx).into_iter();
    let views = all.filter_map(|o| match o {
        Observation::ViewLearned { version, how } => Some((version, how)),
        _ => None,
    });
    let views = views.collect();
    it.0.ctx.out.clear();
    views
}

#[test]
fn a_view_that_was_announced_is_not_learned_again_from_the_table() {
    let table = history();
    let mut it = Silo::at(&table[0]);
    it.hears_step(&table[0], &table[1]);
    assert_eq!(learned(&mut it), [(6, Learned::Changes)]);
    it.sees(&table[1]);
    assert_eq!(it.versions(), (6, 6));
    assert_eq!(learned(&mut it), []);
    it.hears(3, Delta::whole(&ClusterView::new(table[2].clone())));
    assert_eq!(learned(&mut it), [(7, Learned::Rows)]);
}

#[test]
fn what_the_table_has_shown_before_is_learned_from_the_silo_that_sends_it() {
    let table = history();
    let mut it = Silo::at(&table[0]);
    it.sees(&table[1]);
    assert_eq!(learned(&mut it), []);
    it.hears_step(&table[0], &table[1]);
    assert_eq!(it.versions(), (6, 6));
    assert_eq!(learned(&mut it), [(6, Learned::Changes)]);
}

#[test]
fn a_newcomer_gets_rows_from_a_member_and_then_the_changes() {
    let table = history();
    let mut it = Silo::newcomer();
    it.sees(&table[1]);
    let asked = it.asked().unwrap();
    it.answers(&table[..2], asked, 6);
    assert_eq!(learned(&mut it), [(6, Learned::Rows)]);
    // Its row is not in: nobody sends it news.
    let (mut row, now) = (row_of(&table[2]), it.0.ctx.mono());
    row.row = None;
    it.0.on_shown(now, it.0.ctx.me, row.clone());
    let asked = it.asked().unwrap();
    assert_eq!(asked.2, 6, "the changes since");
    it.answers(&table[..3], asked, 7);
    it.0.on_shown(now, it.0.ctx.me, row);
    assert_eq!(it.versions(), (7, 7));
    assert_eq!(learned(&mut it), [(7, Learned::Changes)]);
}

#[test]
fn a_read_and_a_commit_bring_views_too() {
    let table = history();
    let mut it = Silo::at(&table[0]);
    let now = it.0.ctx.mono();
    let answer = ReadAnswer::Snapshot {
        snapshot: table[1].clone(),
        heartbeats: None,
    };
    it.0.on_read(now, true, answer, Learned::Read);
    assert_eq!(learned(&mut it), [(6, Learned::Read)]);
    let unchanged = ReadAnswer::Unchanged { heartbeats: None };
    it.0.on_read(now, true, unchanged, Learned::Read);
    assert_eq!(learned(&mut it), []);
    it.0.settle(vec![Outcome::Made {
        sent: now,
        snapshot: Box::new(table[2].clone()),
    }]);
    assert_eq!(learned(&mut it), [(7, Learned::Commit)]);
}
