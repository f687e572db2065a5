//! P1 to P3: views of the table, versions in order, and silos that stay dead.

use super::super::*;
use super::stage::*;
use crate::fake::tampered_cluster;
use membership_core::Row;
use membership_core::protocol::Notice;

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
    let table = ClusterView::confirmed(stage.table.clone(), None);
    let back = |p| Fact::Published {
        process: ProcessId(p),
        view: &table,
    };
    let said = Effect::Tell(Notice::ViewWithdrawn {
        version: 1,
        table: 1,
    });
    let other = Effect::Tell(Notice::Suspended(false));
    for (effect, is_said) in [(&said, true), (&other, false)] {
        check.observe(&back(1), &stage.truth).unwrap();
        let process = ProcessId(1);
        let next = check.observe(&Fact::Effect { process, effect }, &stage.truth);
        assert_eq!(next.is_ok(), is_said, "{next:?}");
    }
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
