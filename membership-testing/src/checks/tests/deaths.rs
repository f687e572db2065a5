//! P6, P9 to P11: common outages, joins without contact, and deaths that the checkers judge.

use std::time::Duration;

use super::super::*;
use super::stage::*;
use crate::ground_truth::Split;
use membership_core::{CommitId, Evidence, Row, Suspicion, SuspicionReason};

#[test]
fn p6_detects_a_death_by_a_common_outage_but_accepts_other_causes() {
    let outage = || {
        let mut stage = Stage::with(5);
        stage.truth.table_down.set(true, NOON - S(300));
        stage.truth.table_down.set(false, NOON - S(200));
        stage
    };
    judges_evictions(outage(), &mut Outage::default());
    let death = |change: fn(&mut Stage)| {
        let mut stage = outage();
        change(&mut stage);
        let mut check = Outage::default();
        stage
            .commits(&mut check, vec![], voted(1, &[0, 2]))
            .map(|()| check.judged())
    };
    death(|_| {}).unwrap_err();
    assert_eq!(death(|s| s.truth.now += S(200)), Ok(0));
    assert_eq!(
        death(|s| s.truth.records[1].ended = Some(NOON - S(100))),
        Ok(1)
    );
    assert_eq!(
        death(|s| s.truth.records[1].paused.set(true, NOON - S(100))),
        Ok(1)
    );
    assert_eq!(death(|s| s.block(0, 1)), Ok(0));
    death(|s| s.truth.records[2].paused.set(true, NOON - S(100))).unwrap_err();
}
#[test]
fn p9_detects_a_join_without_contact() {
    let mut stage = Stage::with(3);
    let mut check = Contact::default();
    let mut joiner = entry(3, SiloStatus::Joining);
    let mut record = stage.truth.records[0].clone();
    (record.name, record.host, record.silo) = ("s3".to_owned(), 3, Some(silo(3)));
    stage.truth.records.push(record);
    stage.truth.owners.insert(silo(3), ProcessId(3));
    stage
        .commits(&mut check, vec![joiner.clone()], vec![])
        .unwrap();
    joiner.status = SiloStatus::Active;
    let meet = |check: &mut Contact, stage: &Stage, from: usize, body: Message| {
        check
            .observe(
                &Fact::Delivered {
                    from: ProcessId(from),
                    to: ProcessId(3),
                    body: &body,
                },
                &stage.truth,
            )
            .unwrap();
    };
    meet(&mut check, &stage, 0, Message::DialBack { nonce: 1 });
    meet(&mut check, &stage, 1, Message::ProbeAck { nonce: 1 });
    meet(&mut check, &stage, 2, Message::DialBack { nonce: 1 });
    let before = stage.table.clone();
    assert!(
        stage
            .commits(&mut check, vec![], vec![joiner.clone()])
            .unwrap_err()
            .contains("never dialled by s1")
    );
    stage.table = before.clone();
    meet(&mut check, &stage, 1, Message::DialBack { nonce: 1 });
    stage
        .commits(&mut check, vec![], vec![joiner.clone()])
        .unwrap();
    // Nor must a joiner contact a silo that looks abandoned because of a wrong clock, even if the
    // clock was set right just before the commit.
    stage.table = before.clone();
    let mut check = Contact::default();
    meet(&mut check, &stage, 0, Message::DialBack { nonce: 1 });
    meet(&mut check, &stage, 2, Message::DialBack { nonce: 1 });
    let right = stage.truth.records[1].skew;
    for (until, due) in [(NOON - S(1_000), true), (NOON - S(1), false)] {
        stage.table = before.clone();
        stage.truth.records[1].earlier_skews = vec![(until, right.stepped(S(0), -1_000_000))];
        assert_eq!(
            stage
                .commits(&mut check, vec![], vec![joiner.clone()])
                .is_err(),
            due
        );
    }
    stage.truth.records[1].earlier_skews.clear();
    // A joiner need not contact a stale silo.
    stage.table = before;
    stage.truth.heartbeats.remove(&silo(1));
    let mut check = Contact::default();
    meet(&mut check, &stage, 0, Message::DialBack { nonce: 1 });
    meet(&mut check, &stage, 2, Message::DialBack { nonce: 1 });
    stage.commits(&mut check, vec![], vec![joiner]).unwrap();
}

/// The only Active silo stopped writing 20 s ago and was challenged before. The commit in which a
/// silo becomes Active for that reason renews the challenge.
#[test]
fn p9_accepts_a_join_after_a_challenge_that_its_own_commit_renews() {
    let join = |challenged: bool| {
        let mut stage = Stage::with(1);
        let beats = [20, 24, 28].map(|ago| Some(NOON - S(ago)));
        stage.truth.heartbeats.insert(silo(0), beats);
        let mut record = stage.truth.records[0].clone();
        (record.name, record.host, record.silo) = ("s1".to_owned(), 1, Some(silo(1)));
        stage.truth.records.push(record);
        stage.truth.owners.insert(silo(1), ProcessId(1));
        let mut check = Contact::default();
        let accused = |stage: &Stage| {
            let at = stage.truth.wall(&silo(1), stage.truth.now);
            let reason = SuspicionReason::Challenge;
            let mut entry = entry(0, SiloStatus::Active);
            entry.suspicions = vec![Suspicion::new(silo(1), at, reason, Evidence::missed(2, 0))];
            entry
        };
        let mut commit = |stage: &mut Stage, inserts, updates| {
            let id = CommitId::new(u128::from(stage.table.version()) + 1);
            stage.truth.decided.insert(id, stage.truth.now - S(1));
            let (after, _) = stage.commit(Vec::clone(&inserts), Vec::clone(&updates), Vec::new());
            let before = stage.table.clone();
            stage.truth.record_challenge(&before, &after, silo(0));
            stage.commits(&mut check, inserts, updates)
        };
        stage.truth.now = NOON - S(35);
        let updates = challenged.then(|| accused(&stage)).into_iter().collect();
        commit(&mut stage, vec![entry(1, SiloStatus::Joining)], updates)?;
        stage.truth.now = NOON;
        let updates = vec![accused(&stage), entry(1, SiloStatus::Active)];
        commit(&mut stage, vec![], updates)
    };
    join(true).unwrap();
    let why = join(false).unwrap_err();
    assert!(why.contains("never heard from s0"), "{why}");
}

#[test]
fn p11_detects_a_death_on_the_larger_side() {
    let split = || {
        let mut stage = Stage::with(5);
        let group = [(0, 0), (1, 0), (2, 0), (3, 1), (4, 1)]
            .into_iter()
            .collect();
        stage.truth.split = Some(Split {
            since: NOON - S(60),
            healed: None,
            clean: true,
            group,
        });
        stage
    };
    judges_evictions(split(), &mut LargerSide::default());
    let death = |victim: usize, change: fn(&mut Stage)| {
        let mut stage = split();
        change(&mut stage);
        let mut check = LargerSide::default();
        stage
            .commits(&mut check, vec![], voted(victim, &[0, 3]))
            .map(|()| check.judged())
    };
    death(1, |_| {}).unwrap_err();
    assert_eq!(death(4, |_| {}), Ok(1));
    assert_eq!(
        death(1, |s| s.truth.records[1].ended = Some(NOON - S(10))),
        Ok(0),
        "no side is more than half of all"
    );
    assert_eq!(
        death(1, |s| s.truth.records[2].ended = Some(NOON - S(10))),
        Ok(0)
    );
    assert_eq!(death(1, |s| s.truth.table_down.set(true, NOON)), Ok(0));

    // A side that became the larger one because another silo leaves was not the larger one when the
    // others decided.
    let lately = |left: Duration| {
        let mut stage = Stage::with(6);
        let group = [(0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (5, 1)]
            .into_iter()
            .collect();
        stage.truth.split = Some(Split {
            since: NOON - S(100),
            healed: None,
            clean: true,
            group,
        });
        let mut check = LargerSide::default();
        stage.truth.now = left;
        stage
            .commits(&mut check, vec![], vec![entry(5, SiloStatus::ShuttingDown)])
            .unwrap();
        stage.truth.now = NOON;
        stage.commits(&mut check, vec![], voted(1, &[3, 4]))
    };
    lately(NOON - S(5)).unwrap();
    lately(NOON - S(99)).unwrap_err();
    // The silo may not know of its row yet, so it writes no heartbeat.
    let never_beat = |s: &mut Stage| {
        s.truth.heartbeats.remove(&silo(1));
    };
    assert!(death(1, never_beat).unwrap_err().contains("larger side"));
    let unknown = |s: &mut Stage| {
        s.truth.heartbeats.remove(&silo(1));
        s.truth.rough_table.set(true, NOON - S(30));
    };
    assert_eq!(death(1, unknown), Ok(1));

    // For a joiner, the larger side is that of Active and Joining silos together, of rows that
    // already existed: here 3 of 5 are Active, and 4 of 8 are Active or Joining.
    let joiner = |victim: usize| {
        let mut stage = Stage::with(8);
        let group = [
            (0, 0),
            (1, 0),
            (2, 0),
            (7, 0),
            (3, 1),
            (4, 1),
            (5, 1),
            (6, 1),
        ]
        .into_iter()
        .collect();
        stage.truth.split = Some(Split {
            since: NOON - S(60),
            healed: None,
            clean: true,
            group,
        });
        for n in 5..8 {
            stage
                .table
                .rows
                .insert(Row::encode(entry(n, SiloStatus::Joining)));
        }
        let mut check = LargerSide::default();
        stage.commits(&mut check, vec![], voted(victim, &[0, 3]))
    };
    joiner(1).unwrap_err();
    joiner(7).unwrap();
    joiner(5).unwrap();
    let joiners = |since| {
        let mut stage = Stage::with(5);
        let group = [(0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (5, 0), (6, 0)]
            .into_iter()
            .collect();
        for n in 5..7 {
            let mut record = stage.truth.records[0].clone();
            (record.name, record.host, record.endpoint, record.silo) =
                (format!("s{n}"), n, silo(n).endpoint(), Some(silo(n)));
            stage.truth.records.push(record);
            stage.truth.owners.insert(silo(n), ProcessId(n));
        }
        let mut check = LargerSide::default();
        stage
            .commits(
                &mut check,
                (5..7).map(|n| entry(n, SiloStatus::Joining)).collect(),
                vec![],
            )
            .unwrap();
        stage.truth.now += S(60);
        stage.truth.split = Some(Split {
            since,
            healed: None,
            clean: true,
            group,
        });
        stage.commits(&mut check, vec![], voted(5, &[0, 3]))
    };
    joiners(NOON).unwrap_err();
    joiners(NOON - S(1)).unwrap();
}
