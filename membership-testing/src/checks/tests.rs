//! Tests of the checkers. Each one must detect a planted bug: a made-up history, or a silo that
//! misbehaves.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::fake::tampered_cluster;
use crate::ground_truth::{ProcessRecord, Split};
use membership_core::protocol::{Destination, IndirectOutcome, Termination};
use membership_core::{
    CommitId, CommitOutcome, Config, Conflict, Evidence, InstanceId, MembershipEntry, Row, Rows,
    SharedSettings, Suspicion, SuspicionReason, TableId, VersionRow, WallTime,
};

const S: fn(u64) -> Duration = Duration::from_secs;
/// When the made-up deaths happen: late enough that the start has no influence.
pub(super) const NOON: Duration = Duration::from_secs(10_000);

/// A made-up cluster: silos 0.. with one process each, which write heartbeats and reach each other.
pub(super) struct Stage {
    pub(super) truth: GroundTruth,
    pub(super) table: Snapshot,
}

pub(super) fn silo(n: usize) -> SiloAddress {
    SiloAddress::new([10, 0, 0, u8::try_from(n).unwrap()].into(), 7100, 1)
}

impl Stage {
    pub(super) fn with(silos: usize) -> Self {
        let mut truth = GroundTruth::new(Config::default());
        truth.now = NOON;
        let mut rows = Rows::new();
        for n in 0..silos {
            let (name, endpoint) = (format!("s{n}"), silo(n).endpoint());
            truth.records.push(ProcessRecord {
                silo: Some(silo(n)),
                ..ProcessRecord::new(name, n, endpoint, S(0))
            });
            truth.owners.insert(silo(n), ProcessId(n));
            truth.heartbeats.insert(
                silo(n),
                [Some(NOON - S(5)), Some(NOON - S(15)), Some(NOON - S(25))],
            );
            rows.insert(Row::encode(entry(n, SiloStatus::Active)));
        }
        let mut row = VersionRow::initial(TableId::new(1), SharedSettings::default());
        row.row_count = silos as u64;
        Self {
            truth,
            table: Snapshot::new(row.token(&[]), row, rows),
        }
    }

    /// The commit of these entries, made by silo 0.
    pub(super) fn commit(
        &self,
        inserts: Vec<MembershipEntry>,
        updates: Vec<MembershipEntry>,
        removes: Vec<String>,
    ) -> (Snapshot, CommitRequest) {
        let id = CommitId::new(u128::from(self.table.version()) + 1);
        let request = CommitRequest::new(
            self.table.token.clone(),
            id,
            Some(silo(0)),
            inserts,
            updates,
            removes,
        );
        (
            request.apply_to(&self.table, request.next_token(&[])),
            request,
        )
    }

    /// Passes a commit to a checker and returns its verdict. The commit becomes the present table.
    pub(super) fn commits(
        &mut self,
        check: &mut dyn Check,
        inserts: Vec<MembershipEntry>,
        updates: Vec<MembershipEntry>,
    ) -> Result<(), String> {
        let (after, request) = self.commit(inserts, updates, Vec::new());
        let before = std::mem::replace(&mut self.table, after.clone());
        check.observe(
            &Fact::Committed {
                before: &before,
                after: &after,
                request: &request,
            },
            &self.truth,
        )
    }

    fn block(&mut self, a: usize, b: usize) {
        self.truth.any_block.set(true, NOON - S(30));
        self.truth
            .blocks
            .entry((a, b))
            .or_default()
            .set(true, NOON - S(30));
    }
}

pub(super) fn entry(n: usize, status: SiloStatus) -> MembershipEntry {
    let mut e = MembershipEntry::new(silo(n), InstanceId::new(n as u128), WallTime::default());
    e.status = status;
    e
}

pub(super) fn dead(n: usize, cause: CauseOfDeath, accusers: &[usize]) -> MembershipEntry {
    let mut e = entry(n, SiloStatus::Dead);
    e.death = Some(Death::new(cause, WallTime::default(), None, 1));
    let truth = Stage::with(1).truth;
    e.suspicions = accusers
        .iter()
        .map(|a| {
            // Silo 0 writes all these commits.
            let mut evidence = Evidence::missed(3, 0);
            evidence.via = (*a != 0).then(|| silo(0));
            let at = truth.wall(&silo(0), truth.now);
            Suspicion::new(silo(*a), at, SuspicionReason::Silent, evidence)
        })
        .collect();
    e
}

pub(super) fn voted(n: usize, accusers: &[usize]) -> Vec<MembershipEntry> {
    vec![dead(n, CauseOfDeath::Voted, accusers)]
}

pub(super) fn evicted(n: usize) -> Vec<MembershipEntry> {
    vec![dead(
        n,
        CauseOfDeath::Evicted {
            by: silo(0).to_string(),
            reason: "because".to_owned(),
        },
        &[],
    )]
}

/// Checks the eviction of silo 1: without an order it is judged like a death by votes, with an
/// order it is not.
fn judges_evictions(mut stage: Stage, check: &mut dyn Check) {
    stage.truth.evictions.insert((silo(1), silo(2).to_string()));
    let before = stage.table.clone();
    assert!(
        stage
            .commits(check, vec![], evicted(1))
            .unwrap_err()
            .contains("is declared dead")
    );
    stage.table = before;
    stage.truth.evictions.insert((silo(1), silo(0).to_string()));
    stage.commits(check, vec![], evicted(1)).unwrap();
}

#[test]
fn p1_detects_views_that_never_were_in_the_table() {
    let stage = Stage::with(3);
    let mut check = SameVersionSameMembers::default();
    check
        .observe(&Fact::Created(&stage.table), &stage.truth)
        .unwrap();
    let mut publish = |snapshot: &Snapshot| {
        let view = ClusterView::new(snapshot.clone());
        check.observe(
            &Fact::Published {
                process: ProcessId(0),
                view: &view,
            },
            &stage.truth,
        )
    };
    publish(&stage.table).unwrap();
    let (never_landed, _) = stage.commit(vec![], voted(1, &[]), vec![]);
    assert!(
        publish(&never_landed)
            .unwrap_err()
            .contains("never existed")
    );
    let mut other = stage.table.clone();
    other
        .rows
        .insert(Row::encode(entry(2, SiloStatus::ShuttingDown)));
    assert!(publish(&other).unwrap_err().contains("other members"));
}

#[test]
fn p2_detects_a_version_published_twice() {
    let stage = Stage::with(1);
    let mut check = Rising::default();
    let view = ClusterView::new(stage.table.clone());
    let fact = |p| Fact::Published {
        process: ProcessId(p),
        view: &view,
    };
    check.observe(&fact(0), &stage.truth).unwrap();
    check.observe(&fact(1), &stage.truth).unwrap();
    check.observe(&fact(0), &stage.truth).unwrap_err();
    let mut again = tampered_cluster(3, |_, effects| {
        if let Some(publish) = effects
            .iter()
            .find(|e| matches!(e, Effect::Publish(_)))
            .cloned()
        {
            effects.push(publish);
        }
    });
    assert_eq!(again.run_for(S(60)).unwrap_err().invariant(), "P2");
}

#[test]
fn p3_detects_a_dead_silo_that_returns() {
    let mut stage = Stage::with(3);
    let mut check = DeadIsFinal::default();
    stage
        .commits(&mut check, vec![], voted(1, &[0, 2]))
        .unwrap();
    stage
        .commits(&mut check, vec![], vec![entry(1, SiloStatus::Active)])
        .unwrap_err();

    let mut stage = Stage::with(3);
    let (after, request) = stage.commit(vec![], vec![], vec![silo(1).row_key()]);
    let fact = Fact::Committed {
        before: &stage.table,
        after: &after,
        request: &request,
    };
    assert!(
        check
            .observe(&fact, &stage.truth)
            .unwrap_err()
            .contains("was removed"),
        "removed while alive"
    );
    stage.table = after;
    assert!(
        stage
            .commits(&mut check, vec![entry(1, SiloStatus::Joining)], vec![])
            .unwrap_err()
            .contains("is back")
    );
    let mut older = entry(0, SiloStatus::Joining);
    older.address = silo(0).with_epoch(0);
    stage.commits(&mut check, vec![older], vec![]).unwrap_err();
    stage
        .commits(&mut check, vec![], vec![entry(2, SiloStatus::Joining)])
        .unwrap_err();
}

#[test]
fn p4_detects_messages_after_the_end() {
    let mut cluster = tampered_cluster(3, |input, effects| {
        if matches!(
            input,
            Input::Command(membership_core::protocol::Command::FinishLeave)
        ) {
            effects.push(Effect::Initialize {
                call: membership_core::protocol::CallId(9),
                request: membership_core::InitializeRequest::new(
                    TableId::new(1),
                    SharedSettings::default(),
                ),
            });
        }
    });
    cluster.run_until_agreed(S(60)).unwrap();
    let one = cluster.running()[0];
    cluster.leave(one);
    assert_eq!(cluster.run_for(S(60)).unwrap_err().invariant(), "P4");
}

#[test]
fn p4_detects_answers_after_a_confirmed_death_and_a_second_farewell() {
    let mut stage = Stage::with(2);
    let mut check = Silence::default();
    let (me, truth) = (ProcessId(1), stage.truth.clone());
    let wants = |check: &mut Silence, effect: Effect| {
        check.observe(
            &Fact::Effect {
                process: me,
                effect: &effect,
            },
            &truth,
        )
    };
    let send = |body| Effect::Send {
        to: Destination::Endpoint(silo(0).endpoint()),
        header: membership_core::protocol::Header {
            cluster: 0,
            protocol: 1,
            from: silo(1),
            instance: InstanceId::new(1),
            to: None,
            table_id: None,
            version: 0,
            digest: 0,
        },
        body: Arc::new(body),
    };
    wants(
        &mut check,
        Effect::Tell(membership_core::protocol::Notice::Joining {
            silo: silo(1),
            version: 0,
        }),
    )
    .unwrap();
    wants(
        &mut check,
        Effect::Publish(ClusterView::new(stage.table.clone())),
    )
    .unwrap();
    wants(&mut check, send(Message::ProbeAck { nonce: 1 })).unwrap();
    // A silo whose table had another history considers it another table, and continues.
    let mut stranger = check.clone();
    stage.commits(&mut check, vec![], voted(1, &[0])).unwrap();
    let input = Input::Read {
        call: membership_core::protocol::CallId(1),
        result: Ok(membership_core::ReadAnswer::Snapshot {
            snapshot: stage.table.clone(),
            heartbeats: None,
        }),
    };
    check
        .observe(
            &Fact::Input {
                process: me,
                input: &input,
            },
            &stage.truth,
        )
        .unwrap();
    stranger
        .observe(
            &Fact::Input {
                process: me,
                input: &input,
            },
            &stage.truth,
        )
        .unwrap();
    wants(&mut stranger, send(Message::ProbeAck { nonce: 1 })).unwrap();
    let mut other = check.clone();
    wants(
        &mut check,
        send(Message::Farewell {
            version: 1,
            delta: None,
        }),
    )
    .unwrap();
    wants(
        &mut check,
        send(Message::Farewell {
            version: 1,
            delta: None,
        }),
    )
    .unwrap_err();
    wants(
        &mut other,
        send(Message::IndirectReply {
            round: 1,
            outcome: IndirectOutcome::Yes,
        }),
    )
    .unwrap_err();
    wants(
        &mut other,
        Effect::Publish(ClusterView::new(stage.table.clone())),
    )
    .unwrap_err();
    wants(&mut other, Effect::Stop(Termination::Left { clean: true })).unwrap();
    wants(
        &mut other,
        Effect::Tell(membership_core::protocol::Notice::Suspended(true)),
    )
    .unwrap_err();
}

#[test]
fn p4_detects_a_silo_that_stops_as_dead_without_being_dead() {
    let mut stage = Stage::with(2);
    let end = |stage: &Stage, check: &mut Silence| {
        let declared = membership_core::protocol::DeclaredDead {
            silo: silo(1),
            version: 0,
            death: None,
            votes: Vec::new(),
            at: WallTime::default(),
        };
        let effect = Effect::Stop(Termination::DeclaredDead(declared));
        check.observe(
            &Fact::Effect {
                process: ProcessId(1),
                effect: &effect,
            },
            &stage.truth,
        )
    };
    let mut check = Silence::default();
    check
        .observe(&Fact::Created(&stage.table), &stage.truth)
        .unwrap();
    assert!(end(&stage, &mut check).unwrap_err().contains("is not Dead"));
    let alive = stage.table.clone();
    stage.commits(&mut check, vec![], voted(1, &[0])).unwrap();
    end(&stage, &mut check.clone()).unwrap();
    // Alive again in a restored table, then dead in another one. The table must have told the silo,
    // at least by a conflict.
    let me = ProcessId(1);
    let tell = |check: &mut Silence, effect| {
        check
            .observe(
                &Fact::Effect {
                    process: me,
                    effect: &effect,
                },
                &stage.truth,
            )
            .unwrap()
    };
    tell(
        &mut check,
        Effect::Tell(membership_core::protocol::Notice::Joining {
            silo: silo(1),
            version: 0,
        }),
    );
    tell(&mut check, Effect::Publish(ClusterView::new(alive.clone())));
    for table in [&alive, &stage.table] {
        check.observe(&Fact::Created(table), &stage.truth).unwrap();
    }
    assert!(
        end(&stage, &mut check.clone())
            .unwrap_err()
            .contains("is not Dead")
    );
    let conflict = |snapshot: &Snapshot| Input::Committed {
        call: membership_core::protocol::CallId(1),
        result: Ok(CommitOutcome::Conflict(Conflict::new(
            None,
            Some(snapshot.clone()),
        ))),
    };
    check
        .observe(
            &Fact::Input {
                process: me,
                input: &conflict(&alive),
            },
            &stage.truth,
        )
        .unwrap();
    assert!(
        end(&stage, &mut check.clone())
            .unwrap_err()
            .contains("is not Dead")
    );
    check
        .observe(
            &Fact::Input {
                process: me,
                input: &conflict(&stage.table),
            },
            &stage.truth,
        )
        .unwrap();
    end(&stage, &mut check).unwrap();
}

#[test]
fn p4_detects_an_active_silo_that_stops_because_its_join_failed() {
    let mut stage = Stage::with(2);
    let mut check = Silence::default();
    let stops = |stage: &Stage, check: &mut Silence| {
        let effect = Effect::Stop(Termination::JoinFailed(
            membership_core::protocol::JoinError::Stopped,
        ));
        check.observe(
            &Fact::Effect {
                process: ProcessId(1),
                effect: &effect,
            },
            &stage.truth,
        )
    };
    let publish = Effect::Publish(ClusterView::new(stage.table.clone()));
    check
        .observe(
            &Fact::Effect {
                process: ProcessId(1),
                effect: &publish,
            },
            &stage.truth,
        )
        .unwrap();
    stage.truth.now += S(12);
    stops(&stage, &mut check.clone()).unwrap();
    stage.truth.now += S(12);
    assert!(
        stops(&stage, &mut check.clone())
            .unwrap_err()
            .contains("its join failed")
    );
    stage.truth.records[1].paused.set(true, stage.truth.now);
    stops(&stage, &mut check).unwrap();
}

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
fn p7_detects_a_cluster_that_has_not_recovered() {
    let stage = Stage::with(2);
    let view = ClusterView::new(stage.table.clone());
    let settled = |live: &[(ProcessId, Option<ClusterView>)], stage: &Stage| {
        Recovery.observe(
            &Fact::Settled {
                live,
                table: Some(&stage.table),
            },
            &stage.truth,
        )
    };
    let (a, b) = (
        (ProcessId(0), Some(view.clone())),
        (ProcessId(1), Some(view.clone())),
    );
    settled(&[a.clone(), b.clone()], &stage).unwrap();
    assert!(
        settled(std::slice::from_ref(&a), &stage)
            .unwrap_err()
            .contains("no running process")
    );
    settled(&[a.clone(), (ProcessId(1), None)], &stage).unwrap_err();
    let mut later = Stage::with(2);
    later
        .commits(
            &mut Rising::default(),
            vec![],
            vec![entry(1, SiloStatus::ShuttingDown)],
        )
        .unwrap();
    settled(&[a, b], &later).unwrap_err();
    let view = Some(ClusterView::new(later.table.clone()));
    assert!(
        settled(
            &[(ProcessId(0), view.clone()), (ProcessId(1), view)],
            &later
        )
        .unwrap_err()
        .contains("ShuttingDown")
    );
    let mut cluster = tampered_cluster(3, |_, _| {});
    cluster.run_until_agreed(S(60)).unwrap();
    let victim = cluster.running()[1];
    cluster.kill(victim);
    assert_eq!(
        cluster.settle().unwrap_err().invariant(),
        "P7",
        "these machines detect no crash"
    );
}

#[test]
fn p8_measures_the_busiest_minute() {
    let mut load = Load::of(10, S(100));
    let mut truth = Stage::with(1).truth;
    let body = Arc::new(Message::Probe { nonce: 1 });
    let header = membership_core::protocol::Header {
        cluster: 0,
        protocol: 1,
        from: silo(0),
        instance: InstanceId::new(1),
        to: None,
        table_id: None,
        version: 0,
        digest: 0,
    };
    let effect = Effect::Send {
        to: Destination::Endpoint(SocketAddr::from(([1, 1, 1, 1], 1))),
        header,
        body,
    };
    for second in 0..400_u64 {
        truth.now = S(second);
        for _ in 0..if (200..260).contains(&second) { 40 } else { 10 } {
            load.observe(
                &Fact::Effect {
                    process: ProcessId(0),
                    effect: &effect,
                },
                &truth,
            )
            .unwrap();
        }
    }
    assert!((3.9..=4.1).contains(&load.peak()), "{}", load.peak());
}

#[test]
fn p8_detects_silos_that_probe_all_others() {
    // These machines probe all others every two seconds; the change limits the number of probes.
    let peak = |silos, targets: usize| {
        let mut cluster = tampered_cluster(silos, move |_, effects| {
            let mut probes = 0;
            effects.retain(|effect| {
                let probe = matches!(effect, Effect::Send { body, .. } if matches!(**body, Message::Probe { .. }));
                probes += usize::from(probe);
                !probe || probes <= targets
            });
        });
        cluster.run_until_agreed(S(60)).unwrap();
        cluster.measure_load();
        cluster.run_for(S(130)).unwrap();
        cluster.peak_load()
    };
    assert!(
        Load::compare(peak(10, 99), peak(16, 99))
            .unwrap_err()
            .contains("in the larger cluster")
    );
    Load::compare(peak(10, 3), peak(16, 3)).unwrap();
    Load::compare(0.0, 0.0).unwrap_err();
    Load::compare(10.0, 12.1).unwrap_err();
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

#[test]
fn p10_detects_the_death_of_a_silo_that_all_but_one_reach() {
    judges_evictions(Stage::with(5), &mut Reach::default());
    let death = |silos, change: fn(&mut Stage)| {
        let mut stage = Stage::with(silos);
        change(&mut stage);
        let mut check = Reach::default();
        stage
            .commits(&mut check, vec![], voted(1, &[0, 2]))
            .map(|()| check.judged())
    };
    death(5, |_| {}).unwrap_err();
    death(5, |s| s.block(0, 1)).unwrap_err();
    death(5, |s| s.truth.records[4].ended = Some(S(5))).unwrap_err();
    assert_eq!(death(2, |_| {}), Ok(0));
    assert_eq!(death(5, |s| (s.block(0, 1), s.block(1, 2)).1), Ok(1));
    assert_eq!(
        death(5, |s| s.truth.records[1].paused.set(true, NOON - S(60))),
        Ok(1)
    );
    assert_eq!(
        death(5, |s| s.truth.rough_network.set(true, NOON - S(60))),
        Ok(0)
    );
}

#[test]
fn p10_covers_the_time_from_which_old_votes_come() {
    let death = |appeared: Duration| {
        let (mut stage, mut check, votes) = (Stage::with(5), Reach::default(), voted(1, &[0, 2]));
        for way in [(0, 1), (1, 0), (2, 1), (1, 2)] {
            let interval = stage.truth.blocks.entry(way).or_default();
            interval.set(true, NOON - S(1_000));
            interval.set(false, NOON - S(900));
        }
        let mut accused = entry(1, SiloStatus::Active);
        accused.suspicions.clone_from(&votes[0].suspicions);
        stage.truth.now = appeared;
        stage.commits(&mut check, vec![], vec![accused]).unwrap();
        stage.truth.now = NOON;
        stage.commits(&mut check, vec![], votes)
    };
    death(NOON - S(60)).unwrap_err();
    // By clocks that were ahead at that time.
    death(NOON - S(950)).unwrap();
}

#[test]
fn p10_does_not_judge_a_cluster_with_one_voter() {
    let death = |others: usize| {
        let (mut stage, mut check) = (Stage::with(6), Reach::default());
        stage.truth.records[1].table_cut.set(true, NOON - S(60));
        stage.truth.table_changed.set(true, NOON - S(500));
        stage.truth.table_changed.set(false, NOON - S(500));
        for record in &mut stage.truth.records[..=others + 1] {
            record.started = NOON - S(400);
        }
        stage.commits(&mut check, vec![], voted(1, &[0]))
    };
    death(3).unwrap_err();
    death(1).unwrap();
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
