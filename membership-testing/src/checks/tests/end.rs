//! P4: silos that are silent after their end.

use std::sync::Arc;

use super::super::*;
use super::stage::*;
use crate::fake::tampered_cluster;
use membership_core::protocol::{Destination, JoinError, Notice, TableState, Termination};
use membership_core::{
    ClusterKey, CommitOutcome, Conflict, Discontinuity, InstanceId, SharedSettings, TableId,
    WallTime,
};

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
                    ClusterKey::new([7; 32]),
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
        header: membership_core::protocol::Header::new(0, silo(1), InstanceId::new(1)),
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
        send(Message::RollAnswer {
            call: 1,
            findings: Vec::new(),
            missed: Vec::new(),
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
        let declared = membership_core::protocol::DeclaredDead::new(
            silo(1),
            0,
            None,
            Vec::new(),
            WallTime::default(),
        );
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
    // Alive again in a restored table, then dead in another one. The silo must have learned that
    // from the table, at least from a conflict.
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

/// A table of another life, without the row of the silo, is read, and then the silo's own table is back.
/// From 16 versions on nothing in that table tells the silo that it is another one.
#[test]
fn p4_asks_for_the_table_as_it_was_when_a_silo_read_its_end() {
    let stage = Stage::with(2);
    let me = ProcessId(1);
    let stops_after = |version: u64| {
        let mut check = Silence::default();
        let mut observe = |fact: Fact<'_>| check.observe(&fact, &stage.truth);
        observe(Fact::Created(&stage.table)).unwrap();
        let joins = Effect::Tell(membership_core::protocol::Notice::Joining {
            silo: silo(1),
            version: 0,
        });
        observe(Fact::Effect {
            process: me,
            effect: &joins,
        })
        .unwrap();
        let mut other = stage.table.clone();
        other.rows.remove(&silo(1).row_key());
        Arc::make_mut(&mut other.version_row).version = version;
        observe(Fact::Created(&other)).unwrap();
        let input = Input::Read {
            call: membership_core::protocol::CallId(1),
            result: Ok(membership_core::ReadAnswer::Snapshot {
                snapshot: other,
                heartbeats: None,
            }),
        };
        observe(Fact::Input {
            process: me,
            input: &input,
        })
        .unwrap();
        observe(Fact::Created(&stage.table)).unwrap();
        let end = membership_core::protocol::DeclaredDead::new(
            silo(1),
            version,
            None,
            Vec::new(),
            WallTime::default(),
        );
        let stop = Effect::Stop(Termination::DeclaredDead(end));
        observe(Fact::Effect {
            process: me,
            effect: &stop,
        })
    };
    stops_after(10).unwrap_err();
    stops_after(16).unwrap();
}

#[test]
fn p4_detects_an_active_silo_that_stops_because_its_join_failed() {
    let mut stage = Stage::with(2);
    let mut check = Silence::default();
    let look = |stage: &Stage, check: &mut Silence, effect: &Effect| {
        check.observe(
            &Fact::Effect {
                process: ProcessId(1),
                effect,
            },
            &stage.truth,
        )
    };
    let failed = Effect::Stop(Termination::JoinFailed(JoinError::NoClusterKey));
    let given_up = Effect::Stop(Termination::JoinFailed(JoinError::Stopped));
    let publish = Effect::Publish(ClusterView::new(stage.table.clone()));
    look(&stage, &mut check, &publish).unwrap();
    stage.truth.now += S(12);
    look(&stage, &mut check.clone(), &failed).unwrap();
    stage.truth.now += S(12);
    let found = look(&stage, &mut check.clone(), &failed).unwrap_err();
    assert!(found.contains("its join failed"));
    // The application gave the join up before it was told of the success.
    look(&stage, &mut check.clone(), &given_up).unwrap();
    let mut told = check.clone();
    let tell = Effect::Tell(Notice::Active { version: 2 });
    look(&stage, &mut told, &tell).unwrap();
    let found = look(&stage, &mut told, &given_up).unwrap_err();
    assert!(found.contains("was told that it is Active"));
    // Only others said that it is Active, and then the table was restored from a backup.
    let mut detached = check.clone();
    let changed = Effect::Tell(Notice::Table(TableState::Changed(
        Discontinuity::RolledBack,
    )));
    look(&stage, &mut detached, &changed).unwrap();
    look(&stage, &mut detached, &failed).unwrap();
    stage.truth.records[1].paused.set(true, stage.truth.now);
    look(&stage, &mut check, &failed).unwrap();
}
