//! When a silo says *unknown*, or gives no consent.

use super::*;
use crate::Discontinuity;
use crate::protocol::TableState;

#[test]
fn only_a_healthy_silo_consents() {
    let fails = |a: &mut Answering| {
        a.call(8, [3]);
        a.run(ms(1_500) * a.judge.multiplier);
        a.findings()
    };
    let consent = |findings: &[(SiloAddress, Finding)]| match findings {
        [(_, Finding::Failed { consent, .. })] => consent.is_some(),
        other => panic!("{other:?}"),
    };
    let mut a = Answering::new();
    assert!(consent(&fails(&mut a)));
    let mut a = Answering::new();
    (a.judge.score, a.judge.multiplier) = (1, 2);
    assert!(!consent(&fails(&mut a)), "a network reason");
    let mut a = Answering::new();
    a.ctx.status = SiloStatus::Joining;
    assert!(consent(&fails(&mut a)), "a joining silo may challenge");
    let mut a = Answering::new();
    (a.judge.score, a.judge.local) = (1, 1);
    assert_eq!(
        fails(&mut a),
        [(silo(3), Finding::Unknown)],
        "a local reason"
    );
    let mut a = Answering::new();
    a.ctx.suspended = true;
    assert_eq!(
        fails(&mut a),
        [(silo(3), Finding::Unknown)],
        "after a pause"
    );
    let mut a = Answering::new();
    a.ctx.status = SiloStatus::ShuttingDown;
    assert_eq!(fails(&mut a), [(silo(3), Finding::Unknown)], "it leaves");
}

#[test]
fn a_silo_that_is_not_well_can_still_say_whom_it_reaches() {
    let mut a = Answering::new();
    (a.judge.score, a.judge.local) = (1, 1);
    a.call(8, [3]);
    a.run(ms(24));
    let (probes, answers) = a.sent();
    assert_eq!(probes.len(), 1);
    assert_eq!(answers, [(8, vec![(silo(3), Finding::Unknown)], vec![])]);
    a.run(ms(76));
    a.hear(3);
    assert_eq!(a.findings(), [(silo(3), Finding::Reached)]);
    // Without an answer it has nothing to add, and asks again when it is asked later.
    a.call(9, [4]);
    a.run(ms(24));
    a.sent();
    a.run(ms(1_576));
    assert_eq!(a.findings(), []);
    a.run(ms(1_600));
    a.call(10, [4]);
    assert_eq!(a.sent().0.len(), 1);
}

#[test]
fn a_silo_that_becomes_unwell_meanwhile_says_unknown() {
    let mut a = Answering::new();
    a.call(8, [3]);
    a.run(ms(1_000));
    a.judge.local = 1;
    a.run(ms(500));
    assert_eq!(a.findings(), [(silo(3), Finding::Unknown)]);
    // It still says whom it reaches.
    a.hear(4);
    a.call(9, [4]);
    assert_eq!(a.findings(), [(silo(4), Finding::Reached)]);
}

#[test]
fn a_suspect_whose_epoch_is_not_known_is_unknown() {
    let mut a = Answering::new();
    let suspects = [silo(3).with_epoch(9), silo(6), silo(7)];
    a.ask(other(), 8, suspects.map(|s| (s, 60_000)).to_vec());
    let (probes, answers) = a.sent();
    assert_eq!(probes, []);
    assert_eq!(answers[0].1, suspects.map(|s| (s, Finding::Unknown)));
    a.call(9, [5]);
    assert_eq!(a.sent().0.len(), 1, "a joining silo is known");
}

/// In the table of the other silos, the suspect's address may belong to another silo.
#[test]
fn a_silo_with_another_table_says_unknown() {
    let mut a = Answering::new();
    a.call(8, [3]);
    a.ctx
        .set_table_state(TableState::Changed(Discontinuity::RolledBack));
    a.run(ms(1_500));
    assert_eq!(a.findings(), [(silo(3), Finding::Unknown)]);
}

#[test]
fn a_pause_makes_everything_under_way_unknown() {
    let mut a = Answering::new();
    a.call(8, [3, 4]);
    a.sent();
    a.answerer.void(&mut a.ctx);
    let unknown = |n| (silo(n), Finding::Unknown);
    assert_eq!(a.findings(), [unknown(3), unknown(4)]);
    assert!(a.ctx.timers.next().is_none());
}
