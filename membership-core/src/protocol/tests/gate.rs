//! Which snapshots may become the view. Invariants P1 to P3, clause T16.

use super::super::gate::ends_me;
use super::*;
use crate::Discontinuity;

fn at_version_5() -> Ctx {
    let mut ctx = ctx();
    believe(&mut ctx, snapshot(5, actives([1, 2])));
    ctx
}

#[test]
fn only_larger_versions_of_the_same_table_pass() {
    let mut ctx = at_version_5();
    assert_eq!(
        pass(&mut ctx, snapshot(4, actives([1])), Source::Read),
        Passage::Known
    );
    assert_eq!(
        pass(&mut ctx, snapshot(5, actives([1, 2])), Source::Read),
        Passage::Known
    );
    assert_eq!(
        pass(&mut ctx, snapshot(6, actives([1, 2, 3])), Source::Message),
        Passage::Adopted
    );
    assert_eq!(ctx.version(), 6);
    let mut other = snapshot(7, actives([1]));
    let mut row = (*other.version_row).clone();
    row.table_id = TableId::new(2);
    other.token = row.token(&[]);
    other.version_row = Arc::new(row);
    assert_eq!(
        pass(&mut ctx, other.clone(), Source::Message),
        Passage::NeedsRead
    );
    assert_eq!(
        pass(&mut ctx, other, Source::Read),
        Passage::Broken(Discontinuity::Replaced)
    );
}

#[test]
fn the_same_version_with_other_rows_is_a_rollback() {
    let mut ctx = at_version_5();
    assert_eq!(
        pass(&mut ctx, snapshot(5, actives([1, 3])), Source::Read),
        Passage::Broken(Discontinuity::RolledBack)
    );
    assert_eq!(
        pass(&mut ctx, snapshot(5, actives([1, 3])), Source::Message),
        Passage::NeedsRead
    );
}

#[test]
fn a_message_about_the_own_end_or_a_far_version_needs_a_read() {
    let mut ctx = at_version_5();
    let dead = vec![
        entry(silo(1), SiloStatus::Dead),
        entry(silo(2), SiloStatus::Active),
    ];
    for s in [
        snapshot(6, dead.clone()),
        snapshot(6, actives([2])),
        snapshot(1006, actives([1, 2])),
    ] {
        assert_eq!(pass(&mut ctx, s, Source::Message), Passage::NeedsRead);
    }
    assert_eq!(
        pass(&mut ctx, snapshot(1005, actives([1, 2])), Source::Message),
        Passage::Adopted,
        "1,000 versions are not too many"
    );
    assert_eq!(
        pass(&mut ctx, snapshot(1006, dead), Source::Read),
        Passage::Adopted
    );
    assert!(ends_me(&ctx, ctx.view.clone().unwrap().snapshot()));
}

#[test]
fn rows_show_a_fork_that_the_version_row_no_longer_shows() {
    let mut ctx = at_version_5();
    // 20 versions later, with a row from version 4 that this silo never saw.
    let mut far = snapshot(25, actives([1, 2]));
    let mut stranger = entry(silo(7), SiloStatus::Active);
    stranger.written_at = 4;
    far.rows.insert(crate::Row::encode(stranger));
    assert_eq!(
        pass(&mut ctx, far.clone(), Source::Message),
        Passage::NeedsRead
    );
    assert_eq!(
        pass(&mut ctx, far, Source::Read),
        Passage::Broken(Discontinuity::RolledBack)
    );
}

#[test]
fn no_dead_silo_becomes_alive() {
    let mut ctx = ctx();
    believe(
        &mut ctx,
        snapshot(
            5,
            vec![
                entry(silo(1), SiloStatus::Active),
                entry(silo(2), SiloStatus::Dead),
            ],
        ),
    );
    assert_eq!(
        pass(&mut ctx, snapshot(6, actives([1, 2])), Source::Message),
        Passage::Nonsense
    );
    assert_eq!(
        pass(&mut ctx, snapshot(6, actives([1, 2])), Source::Read),
        Passage::Broken(Discontinuity::RolledBack)
    );
}

#[test]
fn a_damaged_own_row_is_no_end_but_a_newer_process_is() {
    let ctx = at_version_5();
    let mut damaged = snapshot(6, actives([2]));
    assert!(ends_me(&ctx, &damaged), "removed");
    damaged
        .rows
        .insert(crate::Row::decode(silo(1).row_key(), "half a ro"));
    assert!(
        !ends_me(&ctx, &damaged),
        "clause T12: a person can repair it"
    );
    let mut rows = actives([1, 2]);
    rows.push(entry(silo(1).with_epoch(2), SiloStatus::Joining));
    assert!(ends_me(&ctx, &snapshot(6, rows)));
}

#[test]
fn an_old_vote_first_seen_after_an_outage_is_not_fresh() {
    let with_vote = |version| {
        let mut rows = actives([1, 2, 3]);
        rows[2].suspicions.push(vote(2, NOON.minus(secs(100_000))));
        snapshot(version, rows)
    };
    let suspicion = vote(2, NOON.minus(secs(100_000)));
    let mut reading = at_version_5();
    pass_time(&mut reading, secs(60));
    believe(&mut reading, with_vote(6));
    assert!(
        reading.is_fresh(silo(3), &suspicion),
        "I saw it appear; its clock is wrong"
    );
    pass_time(&mut reading, secs(121));
    assert!(!reading.is_fresh(silo(3), &suspicion), "it has expired");
    let mut away = at_version_5();
    pass_time(&mut away, secs(600));
    believe(&mut away, with_vote(6));
    assert!(
        !away.is_fresh(silo(3), &suspicion),
        "it may have been there for ten minutes"
    );
    let mut newcomer = ctx();
    believe(&mut newcomer, with_vote(6));
    assert!(
        !newcomer.is_fresh(silo(3), &suspicion),
        "nobody knows how long it was there before I came"
    );
}
