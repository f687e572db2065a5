//! P10 and P12 to P14: whom a majority reaches, partitions, and joins that one silo blocks.

use std::time::Duration;

use super::super::*;
use super::stage::*;
use crate::Cluster;
use crate::fake::tampered;
use crate::ground_truth::Split;
use crate::machine::protocols;
use membership_core::{Row, RowChange};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// The verdict about the death of silo 1, declared by silo 0 in a cluster that a test changes, and
/// whether it was judged.
fn death(
    silos: usize,
    mut check: impl Check,
    change: impl FnOnce(&mut Stage),
) -> Result<u64, String> {
    let mut stage = Stage::with(silos);
    change(&mut stage);
    stage
        .commits(&mut check, vec![], voted(1, &[0, 2]))
        .map(|()| check.judged())
}

/// Cuts silo 1 from these silos, in one direction.
fn cut(from: std::ops::Range<usize>) -> impl FnOnce(&mut Stage) {
    move |stage| from.for_each(|n| stage.block(n, 1))
}

/// Pauses a silo for a time that ended this long ago, in milliseconds.
fn paused(stage: &mut Stage, n: usize, lasted: u64, ended: u64) {
    let interval = &mut stage.truth.records[n].paused;
    interval.set(true, NOON - MS(ended + lasted));
    interval.set(false, NOON - MS(ended));
}

/// A little less, and a little more, than a failure window.
fn about_a_window(stage: &Stage) -> (u64, u64) {
    let window = u64::try_from(stage.truth.config.failure_window.as_millis()).unwrap();
    (window - 100, window + 100)
}

/// Silo 1 pauses for a little less than a failure window.
fn pauses_shortly(stage: &mut Stage) {
    let (short, _) = about_a_window(stage);
    paused(stage, 1, short, 1_000);
}

#[test]
fn p10_detects_the_death_of_a_silo_that_all_but_one_reach_whatever_else_happens() {
    judges_evictions(Stage::with(5), &mut Reached::default());
    let death = |silos, change: fn(&mut Stage)| death(silos, Reached::default(), change);
    death(5, |_| {}).unwrap_err();
    death(5, |s| s.block(0, 1)).unwrap_err();
    death(5, |s| s.truth.records[4].ended = Some(S(5))).unwrap_err();
    death(5, |s| s.truth.records[1].table_cut.set(true, NOON - S(20))).unwrap_err();
    assert_eq!(death(2, |_| {}), Ok(0));
    assert_eq!(death(5, |s| (s.block(0, 1), s.block(1, 2)).1), Ok(1));
    let lossy = |s: &mut Stage| s.truth.rough_network.set(true, NOON - S(5));
    assert_eq!(death(5, lossy), Ok(1));
    // Old faults do not matter any more.
    let long_ago = |s: &mut Stage| {
        for way in [(0, 1), (2, 1), (3, 1)] {
            let interval = s.truth.blocks.entry(way).or_default();
            interval.set(true, NOON - S(400));
            interval.set(false, NOON - S(300));
        }
    };
    death(5, long_ago).unwrap_err();
    // One that lies is the one that does not reach it.
    death(5, |s| s.truth.lies = true).unwrap_err();
    let lies = |s: &mut Stage| (s.truth.lies, ()) = (true, s.block(0, 1));
    assert_eq!(death(5, lies), Ok(1));
    // If the others are stale, one may decide alone.
    let stale = |s: &mut Stage| (2..5).for_each(|n| s.silence(n));
    assert_eq!(death(5, stale), Ok(0));
}

#[test]
fn p10_excuses_one_long_pause_but_no_short_ones() {
    let death = |change: fn(&mut Stage)| death(5, Reached::default(), change);
    death(pauses_shortly).unwrap_err();
    let stutter = |s: &mut Stage| {
        let (short, _) = about_a_window(s);
        paused(s, 1, short, short + 50);
        paused(s, 1, short - 50, 0);
        // The others pause, too.
        paused(s, 3, short, 500);
    };
    death(stutter).unwrap_err();
    let long = |s: &mut Stage| {
        let (_, long) = about_a_window(s);
        paused(s, 1, long, 1_000);
    };
    assert_eq!(death(long), Ok(1));
    // A hold that begins when the pause ends makes the silence longer.
    let both = |s: &mut Stage| {
        let (short, _) = about_a_window(s);
        paused(s, 1, short, 2_000);
        s.truth.records[1].held.set(true, NOON - S(2));
    };
    assert_eq!(death(both), Ok(1));
    // By a clock that runs fast, and over links that take their time, a pause lasts longer.
    let fast = |s: &mut Stage| {
        s.truth.worst_ppm = 50_000;
        pauses_shortly(s);
    };
    let slow = |s: &mut Stage| {
        s.truth.record_latency(MS(60));
        pauses_shortly(s);
    };
    assert_eq!(death(fast), Ok(1));
    assert_eq!(death(slow), Ok(1));
}

#[test]
fn p12_detects_the_death_of_a_silo_that_a_majority_reaches() {
    judges_evictions(Stage::with(5), &mut Majority::default());
    let death = |silos, change: fn(&mut Stage)| death(silos, Majority::default(), change);
    death(5, |_| {}).unwrap_err();
    // Three of six are no majority; half counts with the leader, which is silo 0.
    death(7, |s| cut(2..5)(s)).unwrap_err();
    assert_eq!(death(7, |s| cut(2..6)(s)), Ok(1));
    let error = death(6, |s| cut(2..5)(s)).unwrap_err();
    assert!(error.contains("the leader reaches it"), "{error}");
    assert_eq!(death(6, |s| cut(3..6)(s)).unwrap_err().len(), error.len());
    let without_leader = |s: &mut Stage| {
        s.block(0, 1);
        cut(2..4)(s);
    };
    assert_eq!(death(6, without_leader), Ok(1));
    assert_eq!(death(2, |s| s.block(0, 1)), Ok(1), "half of two");
    // The other side pauses, crashes and loses messages; that saves nobody's victim.
    let chaos = |s: &mut Stage| {
        cut(2..4)(s);
        s.truth.records[3].paused.set(true, NOON - S(40));
        s.truth.records[2].ended = Some(NOON - S(10));
        s.truth.lossy.entry(2).or_default().set(true, NOON - S(50));
    };
    death(7, chaos).unwrap_err();
    // It paused, it crashed, or nobody knows.
    let long = |s: &mut Stage| s.truth.records[1].paused.set(true, NOON - S(60));
    assert_eq!(death(7, long), Ok(1));
    assert_eq!(death(7, |s| s.truth.records[1].ended = Some(NOON)), Ok(1));
    let lossy = |s: &mut Stage| s.truth.rough_network.set(true, NOON - S(60));
    assert_eq!(death(7, lossy), Ok(0));
}

#[test]
fn p12_counts_a_pause_from_the_last_message_where_some_do_not_reach_the_victim() {
    let death = |change: fn(&mut Stage)| death(7, Majority::default(), change);
    // Each of seven silos is probed every 3 s by each other.
    death(pauses_shortly).unwrap_err();
    death(|s| cut(2..4)(s)).unwrap_err();
    fn cut_off(s: &mut Stage, lasts: u64) {
        cut(2..4)(s);
        paused(s, 1, lasts, 100);
    }
    death(|s| cut_off(s, 1_000)).unwrap_err();
    assert_eq!(death(|s| cut_off(s, 2_000)), Ok(1));
}

/// Silo 0 reaches nobody.
fn accuser_alone(stage: &mut Stage) {
    (1..stage.truth.records.len()).for_each(|n| stage.block(n, 0));
}

#[test]
fn p12_counts_silos_that_may_be_stale_against_the_victim() {
    let death = |silos, change: fn(&mut Stage)| death(silos, Majority::default(), change);
    // Of seven, four are reached by silo 1, but two of these may be stale.
    let two_stale = |s: &mut Stage| {
        cut(2..4)(s);
        for n in 5..7 {
            s.silence(n);
        }
    };
    death(7, two_stale).unwrap_err();
    let three_cut = |s: &mut Stage| {
        cut(2..5)(s);
        for n in 5..7 {
            s.silence(n);
        }
    };
    assert_eq!(death(7, three_cut), Ok(1));
    // A stale victim needs somebody who reaches it and whom the accuser reaches.
    death(5, |s| s.silence(1)).unwrap_err();
    let stale_and_apart = |s: &mut Stage| {
        s.silence(1);
        accuser_alone(s);
    };
    assert_eq!(death(7, stale_and_apart), Ok(0));
    death(7, accuser_alone).unwrap_err();
    // A challenge makes it stale sooner.
    let beats_slowly = |s: &mut Stage| {
        accuser_alone(s);
        let beats = [NOON - S(4), NOON - S(20), NOON - S(30)].map(Some);
        s.truth.heartbeats.insert(silo(1), beats);
    };
    assert_eq!(death(7, beats_slowly), Ok(0));
}

/// Silos 0 to 2 and silos 3 and up are apart, for the last minute.
fn split(silos: usize) -> Stage {
    let mut stage = Stage::with(silos);
    stage.truth.split = Some(Split {
        since: NOON - S(60),
        healed: None,
        clean: true,
        group: (0..silos).map(|n| (n, usize::from(n > 2))).collect(),
    });
    stage
}

#[test]
fn p13_detects_losses_on_two_sides() {
    // Silo 0 writes all these deaths: two of other silos, and then one of its own side.
    let losses = |silos, change: fn(&mut Stage)| {
        let (mut stage, mut check) = (split(silos), OneSide::default());
        change(&mut stage);
        for victim in [4, 5] {
            stage
                .commits(&mut check, vec![], voted(victim, &[0, 1]))
                .unwrap();
        }
        stage
            .commits(&mut check, vec![], voted(1, &[0, 2]))
            .map(|()| check.judged())
    };
    let error = losses(6, |_| {}).unwrap_err();
    assert!(error.contains("s1 is declared dead on one side"), "{error}");
    assert!(error.contains("after s4"), "{error}");
    // Two small sides may lose silos to a large one.
    let third_side = |s: &mut Stage| {
        s.truth.split.as_mut().unwrap().group.insert(5, 2);
    };
    losses(6, third_side).unwrap_err();
    let long = |s: &mut Stage| s.truth.records[1].paused.set(true, NOON - S(60));
    assert_eq!(losses(6, long), Ok(1));
    let crashed = |s: &mut Stage| s.truth.records[1].ended = Some(NOON - S(20));
    assert_eq!(losses(6, crashed), Ok(1));
    assert_eq!(losses(6, |s| s.truth.table_down.set(true, NOON)), Ok(0));
    let not_alone = |s: &mut Stage| s.truth.split.as_mut().unwrap().clean = false;
    assert_eq!(losses(6, not_alone), Ok(0));
    let over = |s: &mut Stage| s.truth.split.as_mut().unwrap().healed = Some(NOON - S(50));
    assert_eq!(losses(6, over), Ok(0));
    // The first side becomes the smaller one, because its silos crash: one is left, of the other
    // side one or two.
    let crashes = |s: &mut Stage| {
        for n in [0, 2] {
            s.truth.records[n].ended = Some(NOON - S(20));
        }
    };
    losses(6, crashes).unwrap_err();
    assert_eq!(losses(7, crashes), Ok(1));
}

#[test]
fn p13_judges_a_third_side_by_its_own_silos() {
    // A silo of the second side dies by the first side, and then one of the first by the third.
    let third_side = |crashed: std::ops::Range<usize>| {
        let (mut stage, mut check) = (split(8), OneSide::default());
        let change = |stage: &mut Stage, silos: &[usize]| {
            let group = &mut stage.truth.split.as_mut().unwrap().group;
            group.extend(silos.iter().map(|n| (*n, 2)));
        };
        change(&mut stage, &[5, 6, 7]);
        for n in crashed {
            stage.truth.records[n].ended = Some(NOON - S(20));
        }
        stage
            .commits(&mut check, vec![], voted(3, &[0, 1]))
            .unwrap();
        // Silo 0 writes all deaths.
        change(&mut stage, &[0]);
        stage.commits(&mut check, vec![], voted(1, &[0, 5, 6]))
    };
    // Two are left of the first side, and four of the third one.
    assert_eq!(third_side(0..0), Ok(()));
    third_side(5..7).unwrap_err();
    third_side(5..8).unwrap_err();
    assert_eq!(third_side(5..6), Ok(()));
}

#[test]
fn p13_counts_who_runs_again_on_the_side_that_wins() {
    // As above: two are left of the first side. On the third side one silo has crashed, one runs beside
    // the writer, and one has paused.
    let third_side = |ended: u64| {
        let (mut stage, mut check) = (split(8), OneSide::default());
        let change = |stage: &mut Stage, silos: &[usize]| {
            let group = &mut stage.truth.split.as_mut().unwrap().group;
            group.extend(silos.iter().map(|n| (*n, 2)));
        };
        change(&mut stage, &[5, 6, 7]);
        stage.truth.records[5].ended = Some(NOON - S(20));
        paused(&mut stage, 6, 20_000, ended);
        stage
            .commits(&mut check, vec![], voted(3, &[0, 1]))
            .unwrap();
        change(&mut stage, &[0]);
        stage.commits(&mut check, vec![], voted(1, &[0, 6, 7]))
    };
    third_side(1_000).unwrap_err();
    assert_eq!(third_side(10_000), Ok(()));
}

#[test]
fn p13_counts_joining_silos_where_few_are_not_stale() {
    // A silo of the first side dies by the second one, of which one silo pauses then. Two silos join
    // on the third side, where one is Active.
    let third_side = |pause: fn(&mut Stage)| {
        let (mut stage, mut check) = (split(5), OneSide::default());
        let change = |stage: &mut Stage, silos: &[usize], side| {
            let group = &mut stage.truth.split.as_mut().unwrap().group;
            group.extend(silos.iter().map(|n| (*n, side)));
        };
        change(&mut stage, &[0, 1, 2], 1);
        change(&mut stage, &[3], 0);
        change(&mut stage, &[4], 2);
        stage
            .commits(&mut check, vec![], voted(3, &[0, 1]))
            .unwrap();
        let joining = vec![entry(4, SiloStatus::Joining)];
        stage.commits(&mut check, vec![], joining).unwrap();
        pause(&mut stage);
        // Silo 0 writes all deaths.
        change(&mut stage, &[0], 2);
        stage.commits(&mut check, vec![], voted(1, &[0, 4]))
    };
    third_side(|_| {}).unwrap_err();
    let paused = |stage: &mut Stage| stage.truth.records[2].paused.set(true, NOON - S(50));
    third_side(paused).unwrap_err();
    let stale = |stage: &mut Stage| {
        stage.truth.records[2].paused.set(true, NOON - S(50));
        let long_ago = NOON - stage.truth.shortest_staleness() - S(5);
        stage
            .truth
            .heartbeats
            .insert(silo(2), [Some(long_ago), None, None]);
    };
    assert_eq!(third_side(stale), Ok(()));
}

/// Four silos and one that joins. One of the four is isolated; `deaf` silos never write a death.
fn join_beside_an_isolated_silo(deaf: bool) -> Cluster {
    let mut cluster = Cluster::builder()
        .seed(3)
        .silos(4)
        .checks(vec![Box::new(BlockedJoins::default())])
        .machines(tampered(protocols(), move |_, effects| {
            effects.retain(|effect| match effect {
                Effect::Commit { request, .. } => {
                    !deaf || request.committer.is_none() || !accuses(request)
                }
                _ => true,
            });
        }))
        .build()
        .unwrap();
    cluster.run_until_agreed(S(60)).unwrap();
    cluster.run_for(S(30)).unwrap();
    let one = cluster.running()[1];
    cluster.start(1);
    cluster.isolate(one);
    cluster
}

fn accuses(request: &CommitRequest) -> bool {
    request.changes.iter().any(|change| {
        matches!(change, RowChange::Update(row) if row.entry().is_some_and(|e| !e.suspicions.is_empty()))
    })
}

#[test]
fn p14_detects_a_join_that_one_unreachable_silo_blocks() {
    let mut cluster = join_beside_an_isolated_silo(true);
    let violation = cluster.run_for(S(120)).unwrap_err();
    assert_eq!(violation.invariant(), "P14");
    assert!(
        violation
            .what()
            .contains("s4 cannot join, because s1 alone")
    );
    let most = BlockedJoins::at_most(&cluster.truth().config);
    assert!((S(120) - most) > S(10) && violation.at() >= S(30) + most);
}

#[test]
fn p14_waits_for_silos_that_pause_again_and_again() {
    let mut cluster = join_beside_an_isolated_silo(true);
    let other = cluster.running()[2];
    for _ in 0..40 {
        cluster.pause(other, S(1));
        cluster.run_for(S(3)).unwrap();
    }
    let violation = cluster.run_for(S(20)).unwrap_err();
    assert_eq!(violation.invariant(), "P14", "it has been well for a while");
}

#[test]
fn p14_accepts_a_join_after_the_unreachable_silo_has_died() {
    let mut cluster = join_beside_an_isolated_silo(false);
    cluster.run_for(S(120)).unwrap();
    assert_eq!(cluster.stats().voted_out, 1);
    assert_eq!(cluster.stats().blocked_joins_judged, 1);
    cluster.heal();
    cluster.settle().unwrap();
    assert_eq!(cluster.running().len(), 4);
}

#[test]
fn p14_asks_about_silos_that_joined_until_a_moment_ago() {
    // Two are Active, and one of them is out of reach. The others join; one is voted out at last.
    let judge = |ended: Option<Duration>| {
        let mut stage = Stage::with(4);
        for n in [2, 3] {
            let row = Row::encode(entry(n, SiloStatus::Joining));
            stage.table.rows.insert(row);
        }
        for n in [0, 2, 3] {
            stage.block(n, 1);
            stage.block(1, n);
        }
        stage.truth.records[3].ended = ended;
        let mut check = BlockedJoins::default();
        let created = Fact::Created(&stage.table);
        check.observe(&created, &stage.truth).unwrap();
        stage.truth.now += stage
            .truth
            .longest(BlockedJoins::at_most(&stage.truth.config))
            + S(5);
        stage.commits(&mut check, vec![], voted(3, &[0]))
    };
    assert_eq!(judge(Some(NOON + S(20))), Ok(()), "two were out of reach");
    let error = judge(None).unwrap_err();
    assert!(
        error.contains("s2 cannot join, because s1 alone"),
        "{error}"
    );
}
