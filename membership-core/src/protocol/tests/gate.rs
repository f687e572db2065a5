//! Which snapshots may become the view. Invariants P1 to P3, clause T16.

use super::super::gate::{confirm, ends_me};
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
    assert_eq!(read(&mut ctx, snapshot(4, actives([1]))), Passage::Old);
    assert_eq!(read(&mut ctx, snapshot(5, actives([1, 2]))), Passage::Known);
    assert_eq!(
        announce(&mut ctx, snapshot(6, actives([1, 2, 3]))),
        Hearing::Announced
    );
    assert_eq!(ctx.version(), 6);
    let mut other = snapshot(7, actives([1]));
    let mut row = (*other.version_row).clone();
    row.table_id = TableId::new(2);
    other.token = row.token(&[]);
    other.version_row = Arc::new(row);
    assert_eq!(announce(&mut ctx, other.clone()), Hearing::NeedsRead);
    assert_eq!(
        read(&mut ctx, other),
        Passage::Broken(Discontinuity::Replaced)
    );
}

#[test]
fn an_announced_view_is_confirmed_or_withdrawn_by_the_table() {
    let mut ctx = at_version_5();
    let six = || snapshot(6, actives([1, 2, 3]));
    let since = |ctx: &Ctx| Some(ctx.now.mono);
    let token = |ctx: &Ctx| ctx.view.as_ref().unwrap().fencing_token();

    announce(&mut ctx, six());
    assert_eq!((ctx.version(), ctx.base_version()), (6, 5));
    assert_eq!(token(&ctx), None, "a message moves no token");
    let at = since(&ctx);
    assert_eq!(pass(&mut ctx, six(), Source::Read, at), Passage::Adopted);
    assert_eq!((ctx.version(), ctx.base_version()), (6, 6));
    assert_eq!(token(&ctx).unwrap().version, 6);

    // The table does not have it.
    announce(&mut ctx, snapshot(7, actives([1, 2])));
    let at = since(&ctx).unwrap();
    let before = MonoTime::from_nanos(at.as_nanos() - 1);
    assert_eq!(
        confirm(&mut ctx, Some(before)),
        Passage::Known,
        "a read that was sent before it was announced says nothing of it"
    );
    assert_eq!(
        confirm(&mut ctx, None),
        Passage::Known,
        "nor does an old one"
    );
    let at = since(&ctx);
    assert_eq!(confirm(&mut ctx, at), Passage::Withdrawn(7));
    assert_eq!((ctx.version(), ctx.base_version()), (6, 6));
    assert_eq!(ctx.members.alive.len(), 3);

    // The table has other rows at that version, or went another way since.
    announce(&mut ctx, snapshot(7, actives([1, 2])));
    let at = since(&ctx);
    let table = snapshot(7, actives([1, 2, 3, 4]));
    assert_eq!(
        pass(&mut ctx, table, Source::Read, at),
        Passage::Withdrawn(7)
    );
    assert_eq!(ctx.members.alive.len(), 4);
    let mut lie = snapshot(8, actives([1, 2]));
    let mut row = (*lie.version_row).clone();
    row.recent.last_mut().unwrap().id = CommitId::new(1);
    lie.token = row.token(&[]);
    lie.version_row = Arc::new(row);
    announce(&mut ctx, lie);
    let table = snapshot(9, actives([1, 2, 3, 4]));
    assert_eq!(
        pass(&mut ctx, table, Source::Read, None),
        Passage::Withdrawn(8)
    );
    assert!(!ctx.is_announced());
}

#[test]
fn an_older_read_advances_the_confirmed_view_below_an_announced_one() {
    let mut ctx = at_version_5();
    announce(&mut ctx, snapshot(8, actives([1, 2, 3])));
    let table = snapshot(7, actives([1, 2]));
    assert_eq!(pass(&mut ctx, table, Source::Read, None), Passage::Adopted);
    assert_eq!((ctx.version(), ctx.base_version()), (8, 7));
    assert!(ctx.is_announced());
}

#[test]
fn a_death_that_its_votes_do_not_justify_is_read_before_it_is_published() {
    let voted = |votes: &[u8]| {
        let mut rows = actives([1, 2, 3, 4]);
        rows.push(entry(silo(5), SiloStatus::Dead));
        rows[4].suspicions = votes.iter().map(|n| vote(*n, NOON)).collect();
        snapshot(6, rows)
    };
    let known = || {
        let mut ctx = ctx();
        believe(&mut ctx, snapshot(5, actives([1, 2, 3, 4, 5])));
        ctx
    };
    assert_eq!(announce(&mut known(), voted(&[2, 3])), Hearing::Announced);
    for votes in [&[][..], &[2], &[5, 2], &[2, 2], &[2, 9]] {
        assert_eq!(
            announce(&mut known(), voted(votes)),
            Hearing::NeedsRead,
            "{votes:?}"
        );
    }
    // Another cause, of a silo that has just answered.
    let mut rows = actives([1, 2, 3, 4]);
    rows.push(entry(silo(5), SiloStatus::Dead));
    rows[4].death = Some(crate::Death::new(crate::CauseOfDeath::Left, NOON, None, 1));
    let left = snapshot(6, rows);
    let none = std::collections::BTreeSet::new();
    for (heard, result) in [(false, Hearing::Announced), (true, Hearing::NeedsRead)] {
        let witness = Witness {
            stale: &none,
            heard: &|_| heard,
        };
        assert_eq!(hear(&mut known(), silo(2), left.clone(), &witness), result);
    }
}

#[test]
fn the_same_version_with_other_rows_is_a_rollback() {
    let mut ctx = at_version_5();
    assert_eq!(
        read(&mut ctx, snapshot(5, actives([1, 3]))),
        Passage::Broken(Discontinuity::RolledBack)
    );
    assert_eq!(
        announce(&mut ctx, snapshot(5, actives([1, 3]))),
        Hearing::NeedsRead
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
        assert_eq!(announce(&mut ctx, s), Hearing::NeedsRead);
    }
    assert_eq!(
        announce(&mut ctx, snapshot(1005, actives([1, 2]))),
        Hearing::Announced,
        "1,000 versions are not too many"
    );
    assert_eq!(read(&mut ctx, snapshot(1006, dead)), Passage::Adopted);
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
    assert_eq!(announce(&mut ctx, far.clone()), Hearing::NeedsRead);
    assert_eq!(
        read(&mut ctx, far),
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
        announce(&mut ctx, snapshot(6, actives([1, 2]))),
        Hearing::NeedsRead
    );
    assert_eq!(
        read(&mut ctx, snapshot(6, actives([1, 2]))),
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

/// Finds one row of each list so that the hashes add up to `total` (Wagner's tree).
fn kin(lists: &[Vec<u128>], total: u128) -> Option<Vec<u16>> {
    const BITS: u32 = 15;
    type List = Vec<(u128, Vec<u16>)>;
    fn tree(from: usize, n: usize, level: u32, lists: &[Vec<u128>], total: u128) -> List {
        if n == 1 {
            let first = if from == 0 { total } else { 0 };
            let numbered = (0_u16..).zip(&lists[from]);
            return numbered
                .map(|(i, hash)| (hash.wrapping_sub(first), vec![i]))
                .collect();
        }
        let mut left = tree(from, n / 2, level - 1, lists, total);
        let right = tree(from + n / 2, n / 2, level - 1, lists, total);
        let bits = if n == lists.len() { 128 } else { BITS * level };
        let mask = u128::MAX >> (128 - bits);
        left.sort_unstable_by_key(|(sum, _)| sum & mask);
        let mut out = Vec::new();
        for (sum, path) in &right {
            let want = sum.wrapping_neg() & mask;
            let at = left.partition_point(|(sum, _)| sum & mask < want);
            for (other, before) in left[at..].iter().take_while(|(s, _)| s & mask == want) {
                if out.len() >= 1 << 16 {
                    return out;
                }
                let path = before.iter().chain(path).copied().collect();
                out.push((other.wrapping_add(*sum), path));
            }
        }
        out
    }
    let found = tree(0, lists.len(), lists.len().trailing_zeros(), lists, total);
    found.into_iter().next().map(|(_, path)| path)
}

/// Announces a forged version 6, and reads the true one.
fn is_withdrawn(ctx: &mut Ctx, forged: Snapshot, truth: Snapshot) {
    assert_eq!(announce(ctx, forged), Hearing::Announced);
    let published = ctx.view.clone().unwrap();
    let at = Some(ctx.now.mono);
    assert_eq!(pass(ctx, truth, Source::Read, at), Passage::Withdrawn(6));
    assert!(!published.is_confirmed() && published.fencing_token().is_none());
}

/// A member commits honestly and announces other rows with the same digest, which is a sum of fast
/// hashes: 256 filler rows make it what it must be. What was announced must not be confirmed.
#[test]
fn forged_rows_with_the_digest_of_the_table_are_withdrawn() {
    let mut ctx = at_version_5();
    let truth = snapshot(6, actives([1, 2, 3]));
    let mut rows = snapshot(6, actives([1, 2])).rows;
    let mut ghost = entry(silo(66), SiloStatus::Active);
    ghost.written_at = 6;
    rows.insert(crate::Row::encode(ghost));
    let port = |list: usize| u16::try_from(1000 + list).unwrap();
    let key = |list: usize| SiloAddress::new([10, 9, 0, 1].into(), port(list), 1).row_key();
    let body = |list: usize, i: usize| format!("{{\"{list}.{i}\"");
    let lists: Vec<Vec<u128>> = (0..256)
        .map(|list| {
            let key = key(list);
            let hash =
                |i| xxhash_rust::xxh3::xxh3_128(format!("{key}\0{}", body(list, i)).as_bytes());
            (0..1 << 15).map(hash).collect()
        })
        .collect();
    let total = truth.rows.digest().wrapping_sub(rows.digest());
    let fillers = kin(&lists, total).expect("a sum");
    for (list, i) in fillers.iter().enumerate() {
        rows.insert(crate::Row::decode(key(list), body(list, usize::from(*i))));
    }
    assert_eq!(rows.digest(), truth.rows.digest(), "the forgery works");
    let forged = Snapshot::new(truth.token.clone(), truth.version_row.clone(), rows);
    is_withdrawn(&mut ctx, forged, truth);
    assert!(!ctx.is_member(&silo(66), instance(silo(66))));
    assert_eq!(ctx.members.active.len(), 3);
}

#[test]
fn a_forged_version_row_is_withdrawn() {
    let mut ctx = at_version_5();
    let truth = snapshot(6, actives([1, 2, 3]));
    let mut row = (*truth.version_row).clone();
    row.settings.num_votes_for_death_declaration = 9;
    let forged = Snapshot::new(truth.token.clone(), row, truth.rows.clone());
    is_withdrawn(&mut ctx, forged, truth);
}
