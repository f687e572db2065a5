//! The checkers of the table's contract, each proven by a table that breaks the clause.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::tests::Stage;
use super::*;
use crate::protocol::CallId;
use crate::testing::Cluster;
use crate::testing::fake::cluster;
use crate::{CommitId, CommitOutcome, Conflict, ReadAnswer, ReadRequest, VersionToken};

const S: fn(u64) -> Duration = Duration::from_secs;
const CALL: CallId = CallId(1);

/// Runs a world whose table lies from its second minute on, and returns the clause that is broken.
fn caught(lie: impl FnMut(&mut Input) + 'static) -> &'static str {
    let mut world = cluster(7, 4);
    world.run_until_agreed(S(60)).unwrap();
    world.lie = Some(Box::new(lie));
    busy(&mut world).unwrap_err().invariant()
}

fn busy(world: &mut Cluster) -> Result<(), crate::testing::Violation> {
    for _ in 0..4 {
        world.start(2);
        world.run_for(S(20))?;
    }
    Ok(())
}

#[test]
fn a_table_that_keeps_its_contract_is_not_blamed() {
    let mut world = cluster(7, 4);
    world.run_until_agreed(S(60)).unwrap();
    world.table_conflicts(0.5);
    world.unknown_outcomes(0.3);
    busy(&mut world).unwrap();
    assert!(world.stats().conflicts > 3 && world.stats().commits > 8);
    // What was answered before the table went back is judged by the history it is from.
    world.roll_back_table(3);
    world.run_for(S(5)).unwrap();
    world.wipe_table();
    world.run_for(S(5)).unwrap();
    world.start(1);
    world.run_for(S(20)).unwrap();
}

#[test]
fn t1_sees_a_commit_that_skips_a_number() {
    let clause = caught(|answer| {
        if let Input::Committed {
            result: Ok(CommitOutcome::Committed(token)),
            ..
        } = answer
        {
            *token = VersionToken::new(token.table_id(), token.version() + 1, token.commit(), &[]);
        }
    });
    assert_eq!(clause, "T1");
}

#[test]
fn t3_sees_a_success_called_a_conflict_and_a_conflict_without_a_cause() {
    let clause = caught(|answer| {
        if let Input::Committed {
            result: Ok(outcome @ CommitOutcome::Committed(_)),
            ..
        } = answer
        {
            *outcome = CommitOutcome::Conflict(Conflict::default());
        }
    });
    assert_eq!(clause, "T3");
}

#[test]
fn t6_sees_a_torn_read_and_an_old_one() {
    let first = Arc::new(Mutex::new(None::<Snapshot>));
    let torn = caught(move |answer| {
        if let Input::Read {
            result: Ok(ReadAnswer::Snapshot { snapshot, .. }),
            ..
        } = answer
        {
            let mut first = first.lock().unwrap();
            snapshot.rows = first.get_or_insert_with(|| snapshot.clone()).rows.clone();
        }
    });
    assert_eq!(torn, "T6");
    let mut kept = None;
    let old = caught(move |answer| {
        if let Input::Read {
            result: Ok(ReadAnswer::Snapshot { snapshot, .. }),
            ..
        } = answer
        {
            *snapshot = kept.get_or_insert_with(|| snapshot.clone()).clone();
        }
    });
    // Whoever reads an old one after a newer one also sees the version fall.
    assert!(["T6", "T1"].contains(&old), "{old}");
}

/// A silo asks, and is answered; in between something may land.
struct Talk {
    stage: Stage,
    request: CommitRequest,
}

impl Talk {
    fn new() -> Self {
        let stage = Stage::with(3);
        let (_, request) = stage.commit(vec![], vec![], vec![super::tests::silo(1).row_key()]);
        Self { stage, request }
    }

    fn see(&self, check: &mut dyn Check, fact: &Fact<'_>) -> Result<(), String> {
        check.see(fact, &self.stage.truth)
    }

    fn found(&self, check: &mut dyn Check) {
        self.see(check, &Fact::Founded(&self.stage.table)).unwrap();
    }

    fn asks(&self, check: &mut dyn Check, effect: &Effect) {
        self.see(
            check,
            &Fact::Wants {
                process: ProcessId(0),
                effect,
            },
        )
        .unwrap();
    }

    fn commits(&self, check: &mut dyn Check) {
        self.asks(
            check,
            &Effect::Commit {
                call: CALL,
                request: self.request.clone(),
            },
        );
    }

    fn is_told(&self, check: &mut dyn Check, outcome: CommitOutcome) -> Result<(), String> {
        let input = Input::Committed {
            call: CALL,
            result: Ok(outcome),
        };
        self.see(
            check,
            &Fact::Takes {
                process: ProcessId(0),
                input: &input,
            },
        )
    }

    fn reads(&self, check: &mut dyn Check) {
        self.asks(
            check,
            &Effect::Read {
                call: CALL,
                request: ReadRequest::all(),
            },
        );
    }

    fn is_shown(&self, check: &mut dyn Check, snapshot: &Snapshot) -> Result<(), String> {
        let input = Input::Read {
            call: CALL,
            result: Ok(ReadAnswer::Snapshot {
                snapshot: snapshot.clone(),
                heartbeats: None,
            }),
        };
        self.see(
            check,
            &Fact::Takes {
                process: ProcessId(0),
                input: &input,
            },
        )
    }

    /// Another commit lands.
    fn lands(
        &mut self,
        check: &mut dyn Check,
        id: u128,
        from: &Snapshot,
    ) -> Result<Snapshot, String> {
        let mut request =
            CommitRequest::new(from.token.clone(), CommitId::new(id), None, [], [], []);
        request.core = Some(id.to_string());
        let after = request.apply_to(from, request.next_token(&[]));
        self.see(
            check,
            &Fact::Committed {
                before: from,
                after: &after,
                request: &request,
            },
        )?;
        Ok(after)
    }
}

#[test]
fn t1_sees_a_number_used_twice_and_a_version_that_falls() {
    let mut talk = Talk::new();
    let mut check = TableVersions::default();
    talk.found(&mut check);
    let zero = talk.stage.table.clone();
    let one = talk.lands(&mut check, 11, &zero).unwrap();
    assert!(
        talk.lands(&mut check.clone(), 12, &zero)
            .unwrap_err()
            .contains("used for two")
    );
    talk.reads(&mut check);
    talk.is_shown(&mut check, &one).unwrap();
    talk.reads(&mut check);
    assert!(
        talk.is_shown(&mut check, &zero)
            .unwrap_err()
            .contains("after v1")
    );
    // A table that went back begins anew.
    talk.found(&mut check);
    talk.reads(&mut check);
    talk.is_shown(&mut check, &zero).unwrap();
    talk.lands(&mut check, 12, &zero).unwrap();
    talk.see(&mut check, &Fact::Founded(&one)).unwrap();
    let mut late = one;
    late.token = VersionToken::new(crate::TableId::new(99), 4, CommitId::new(1), &[]);
    assert!(
        talk.see(&mut check, &Fact::Founded(&late))
            .unwrap_err()
            .contains("begins at v4")
    );
}

#[test]
fn t3_wants_a_conflict_explained_and_without_effect() {
    let conflict = || CommitOutcome::Conflict(Conflict::default());
    let mut talk = Talk::new();
    let mut check = TableConflicts::default();
    talk.found(&mut check);
    talk.commits(&mut check);
    assert!(
        talk.is_told(&mut check.clone(), conflict())
            .unwrap_err()
            .contains("nobody was before it")
    );
    let zero = talk.stage.table.clone();
    talk.lands(&mut check, 11, &zero).unwrap();
    talk.is_told(&mut check, conflict()).unwrap();
    let id = talk.request.id;
    let mut landed = talk.request.clone();
    landed.id = id;
    let after = landed.apply_to(&zero, landed.next_token(&[]));
    let fact = Fact::Committed {
        before: &zero,
        after: &after,
        request: &landed,
    };
    assert!(
        talk.see(&mut check, &fact)
            .unwrap_err()
            .contains("all the same")
    );
    // One that the rows do not allow.
    let mut check = TableConflicts::default();
    talk.stage
        .table
        .rows
        .remove(&super::tests::silo(1).row_key());
    talk.found(&mut check);
    talk.commits(&mut check);
    talk.is_told(&mut check, conflict()).unwrap();
    // One's own success.
    let mut check = TableConflicts::default();
    talk.found(&mut check);
    talk.commits(&mut check);
    talk.see(&mut check, &fact).unwrap();
    assert!(
        talk.is_told(&mut check, conflict())
            .unwrap_err()
            .contains("but its commit made v1")
    );
}

#[test]
fn t6_wants_reads_atomic_and_recent() {
    let mut talk = Talk::new();
    let mut check = TableReads::default();
    talk.found(&mut check);
    let zero = talk.stage.table.clone();
    talk.reads(&mut check);
    let one = talk.lands(&mut check, 11, &zero).unwrap();
    // Asked before it landed, either is right; asked afterwards, only the newer one.
    talk.is_shown(&mut check.clone(), &zero).unwrap();
    talk.is_shown(&mut check, &one).unwrap();
    talk.reads(&mut check);
    assert!(
        talk.is_shown(&mut check.clone(), &zero)
            .unwrap_err()
            .contains("asked when the table was at v1")
    );
    let mut torn = one.clone();
    torn.rows.remove(&super::tests::silo(2).row_key());
    assert!(
        talk.is_shown(&mut check.clone(), &torn)
            .unwrap_err()
            .contains("rows of another version")
    );
    let never = Snapshot {
        token: VersionToken::new(one.table_id(), 9, CommitId::new(9), &[]),
        ..one.clone()
    };
    assert!(
        talk.is_shown(&mut check, &never)
            .unwrap_err()
            .contains("never had")
    );
    let unchanged = Input::Read {
        call: CALL,
        result: Ok(ReadAnswer::Unchanged { heartbeats: None }),
    };
    let request = ReadRequest {
        known: Some(zero.token.clone()),
        ..ReadRequest::all()
    };
    talk.asks(
        &mut check,
        &Effect::Read {
            call: CALL,
            request,
        },
    );
    assert!(
        talk.see(
            &mut check,
            &Fact::Takes {
                process: ProcessId(0),
                input: &unchanged
            }
        )
        .is_err(),
        "it had changed"
    );
}
