//! Tests of the checkers of the table contract, each with a table that violates the clause.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::tests::Stage;
use super::*;
use crate::Cluster;
use crate::fake::cluster;
use membership_core::protocol::CallId;
use membership_core::{CommitId, CommitOutcome, Conflict, ReadAnswer, ReadRequest, VersionToken};

const S: fn(u64) -> Duration = Duration::from_secs;
const CALL: CallId = CallId(1);

/// Runs a cluster whose table has a planted bug from the second minute on, and returns the violated
/// clause.
fn violated_clause(planted_bug: impl FnMut(&mut Input) + 'static) -> &'static str {
    let mut world = cluster(7, 4);
    world.run_until_agreed(S(60)).unwrap();
    world.planted_bug = Some(Box::new(planted_bug));
    busy(&mut world).unwrap_err().invariant()
}

fn busy(world: &mut Cluster) -> Result<(), crate::Violation> {
    for _ in 0..4 {
        world.start(2);
        world.run_for(S(20))?;
    }
    Ok(())
}

#[test]
fn a_correct_table_violates_nothing() {
    let mut world = cluster(7, 4);
    world.run_until_agreed(S(60)).unwrap();
    world.table_conflicts(0.5);
    world.unknown_outcomes(0.3);
    busy(&mut world).unwrap();
    assert!(world.stats().conflicts > 3 && world.stats().commits > 8);
    // An answer from before a rollback is judged by its own history.
    world.roll_back_table(3);
    world.run_for(S(5)).unwrap();
    world.wipe_table();
    world.run_for(S(5)).unwrap();
    world.start(1);
    world.run_for(S(20)).unwrap();
}

#[test]
fn t1_detects_a_commit_that_skips_a_version() {
    let clause = violated_clause(|answer| {
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
fn t3_detects_a_success_reported_as_a_conflict_and_a_conflict_without_cause() {
    let clause = violated_clause(|answer| {
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
fn t6_detects_a_torn_read_and_an_old_one() {
    let first = Arc::new(Mutex::new(None::<Snapshot>));
    let torn = violated_clause(move |answer| {
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
    let old = violated_clause(move |answer| {
        if let Input::Read {
            result: Ok(ReadAnswer::Snapshot { snapshot, .. }),
            ..
        } = answer
        {
            *snapshot = kept.get_or_insert_with(|| snapshot.clone()).clone();
        }
    });
    // A silo that reads an old version after a newer one also sees the version decrease.
    assert!(["T6", "T1"].contains(&old), "{old}");
}

/// A silo that sends requests and receives answers; commits can happen in between.
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

    fn observe(&self, check: &mut dyn Check, fact: &Fact<'_>) -> Result<(), String> {
        check.observe(fact, &self.stage.truth)
    }

    fn found(&self, check: &mut dyn Check) {
        self.observe(check, &Fact::Created(&self.stage.table))
            .unwrap();
    }

    fn sends(&self, check: &mut dyn Check, effect: &Effect) {
        self.observe(
            check,
            &Fact::Effect {
                process: ProcessId(0),
                effect,
            },
        )
        .unwrap();
    }

    fn commits(&self, check: &mut dyn Check) {
        self.sends(
            check,
            &Effect::Commit {
                call: CALL,
                request: self.request.clone(),
            },
        );
    }

    fn gets_outcome(&self, check: &mut dyn Check, outcome: CommitOutcome) -> Result<(), String> {
        let input = Input::Committed {
            call: CALL,
            result: Ok(outcome),
        };
        self.observe(
            check,
            &Fact::Input {
                process: ProcessId(0),
                input: &input,
            },
        )
    }

    fn reads(&self, check: &mut dyn Check) {
        self.sends(
            check,
            &Effect::Read {
                call: CALL,
                request: ReadRequest::all(),
            },
        );
    }

    fn gets_snapshot(&self, check: &mut dyn Check, snapshot: &Snapshot) -> Result<(), String> {
        let input = Input::Read {
            call: CALL,
            result: Ok(ReadAnswer::Snapshot {
                snapshot: snapshot.clone(),
                heartbeats: None,
            }),
        };
        self.observe(
            check,
            &Fact::Input {
                process: ProcessId(0),
                input: &input,
            },
        )
    }

    /// Another commit is applied.
    fn another_commit(
        &mut self,
        check: &mut dyn Check,
        id: u128,
        from: &Snapshot,
    ) -> Result<Snapshot, String> {
        let mut request =
            CommitRequest::new(from.token.clone(), CommitId::new(id), None, [], [], []);
        request.core = Some(id.to_string().into());
        let after = request.apply_to(from, request.next_token(&[]));
        self.observe(
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
fn t1_detects_a_version_used_twice_and_one_that_decreases() {
    let mut talk = Talk::new();
    let mut check = TableVersions::default();
    talk.found(&mut check);
    let zero = talk.stage.table.clone();
    let one = talk.another_commit(&mut check, 11, &zero).unwrap();
    assert!(
        talk.another_commit(&mut check.clone(), 12, &zero)
            .unwrap_err()
            .contains("used for two")
    );
    talk.reads(&mut check);
    talk.gets_snapshot(&mut check, &one).unwrap();
    talk.reads(&mut check);
    assert!(
        talk.gets_snapshot(&mut check, &zero)
            .unwrap_err()
            .contains("after v1")
    );
    // A table that was rolled back starts a new history.
    talk.found(&mut check);
    talk.reads(&mut check);
    talk.gets_snapshot(&mut check, &zero).unwrap();
    talk.another_commit(&mut check, 12, &zero).unwrap();
    talk.observe(&mut check, &Fact::Created(&one)).unwrap();
    let mut late = one;
    late.token = VersionToken::new(membership_core::TableId::new(99), 4, CommitId::new(1), &[]);
    assert!(
        talk.observe(&mut check, &Fact::Created(&late))
            .unwrap_err()
            .contains("begins at v4")
    );
}

#[test]
fn t3_requires_a_cause_and_no_effect_for_a_conflict() {
    let conflict = || CommitOutcome::Conflict(Conflict::default());
    let mut talk = Talk::new();
    let mut check = TableConflicts::default();
    talk.found(&mut check);
    talk.commits(&mut check);
    assert!(
        talk.gets_outcome(&mut check.clone(), conflict())
            .unwrap_err()
            .contains("no other commit came first")
    );
    let zero = talk.stage.table.clone();
    talk.another_commit(&mut check, 11, &zero).unwrap();
    talk.gets_outcome(&mut check, conflict()).unwrap();
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
        talk.observe(&mut check, &fact)
            .unwrap_err()
            .contains("nevertheless")
    );
    // A commit that the rows do not allow.
    let mut check = TableConflicts::default();
    talk.stage
        .table
        .rows
        .remove(&super::tests::silo(1).row_key());
    talk.found(&mut check);
    talk.commits(&mut check);
    talk.gets_outcome(&mut check, conflict()).unwrap();
    // A silo's own successful commit.
    let mut check = TableConflicts::default();
    talk.found(&mut check);
    talk.commits(&mut check);
    talk.observe(&mut check, &fact).unwrap();
    assert!(
        talk.gets_outcome(&mut check, conflict())
            .unwrap_err()
            .contains("but its commit created v1")
    );
}

#[test]
fn t6_requires_atomic_and_recent_reads() {
    let mut talk = Talk::new();
    let mut check = TableReads::default();
    talk.found(&mut check);
    let zero = talk.stage.table.clone();
    talk.reads(&mut check);
    let one = talk.another_commit(&mut check, 11, &zero).unwrap();
    // A request from before the commit may get either version; a later one only the newer version.
    talk.gets_snapshot(&mut check.clone(), &zero).unwrap();
    talk.gets_snapshot(&mut check, &one).unwrap();
    talk.reads(&mut check);
    assert!(
        talk.gets_snapshot(&mut check.clone(), &zero)
            .unwrap_err()
            .contains("sent the request when the table was at v1")
    );
    let mut torn = one.clone();
    torn.rows.remove(&super::tests::silo(2).row_key());
    assert!(
        talk.gets_snapshot(&mut check.clone(), &torn)
            .unwrap_err()
            .contains("rows of another version")
    );
    let mut never = one.clone();
    never.token = VersionToken::new(one.table_id(), 9, CommitId::new(9), &[]);
    assert!(
        talk.gets_snapshot(&mut check, &never)
            .unwrap_err()
            .contains("never existed")
    );
    let unchanged = Input::Read {
        call: CALL,
        result: Ok(ReadAnswer::Unchanged { heartbeats: None }),
    };
    let request = ReadRequest::all().with_known(zero.token.clone());
    talk.sends(
        &mut check,
        &Effect::Read {
            call: CALL,
            request,
        },
    );
    assert!(
        talk.observe(
            &mut check,
            &Fact::Input {
                process: ProcessId(0),
                input: &unchanged
            }
        )
        .is_err(),
        "it had changed"
    );
}
