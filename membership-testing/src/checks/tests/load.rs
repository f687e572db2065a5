//! P7, P8 and P15: recovery, and the load of probes.

use std::net::SocketAddr;
use std::sync::Arc;

use super::super::*;
use super::stage::*;
use crate::fake::{fakes, tampered, tampered_cluster};
use crate::machine::protocols;
use crate::{Cluster, Latency, MachineFactory};
use membership_core::InstanceId;
use membership_core::protocol::{Destination, Observation};

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
    let header = membership_core::protocol::Header::new(0, silo(0), InstanceId::new(1));
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
fn p15_knows_the_quiet_load_of_the_default_preset() {
    let load = super::super::flood::quiet_load(&membership_core::Config::default());
    assert!((4.0..=4.1).contains(&load), "{load}");
}

/// A cluster whose only check is P15.
fn watched(silos: usize, machines: MachineFactory) -> Cluster {
    Cluster::builder()
        .seed(1)
        .silos(silos)
        .checks(vec![Box::new(Flood::default())])
        .machines(machines)
        .build()
        .unwrap()
}

#[test]
fn p15_detects_silos_that_probe_all_others() {
    // Each of these machines probes all others every two seconds, and answers all others.
    let run = |silos| watched(silos, fakes()).run_for(S(130));
    run(10).unwrap();
    let violation = run(16).unwrap_err();
    assert_eq!(violation.invariant(), "P15");
    assert!(violation.what().contains("each silo sent"), "{violation}");
}

#[test]
fn p15_detects_a_flood_that_lasts_as_long_as_a_fault() {
    // Once a probe was missed, every message is sent this many times more.
    let flood = |times: usize| {
        let mut faulty = false;
        let machines = tampered(protocols(), move |_, effects| {
            let missed = |e: &Effect| matches!(e, Effect::Observe(Observation::ProbeMissed { .. }));
            faulty |= effects.iter().any(missed);
            if faulty {
                let sends = |e: &&Effect| matches!(e, Effect::Send { .. });
                let sent: Vec<Effect> = effects.iter().filter(sends).cloned().collect();
                effects.extend(std::iter::repeat_n(sent, times).flatten());
            }
        });
        let mut cluster = watched(12, machines);
        cluster.run_for(S(120))?;
        let all = cluster.running();
        cluster.partition(&[all[..6].to_vec(), all[6..].to_vec()]);
        cluster.table_outage(S(600));
        cluster.run_for(S(300))
    };
    let violation = flood(20).unwrap_err();
    assert!(violation.invariant() == "P15" && violation.at() > S(120));
    flood(0).unwrap();
}

/// What silos sent before they crashed is not the load of those that are left.
#[test]
fn p15_counts_a_silo_for_as_long_as_it_ran() {
    // The steps begin every five seconds: these silos run for most of one.
    for seconds in [94, 98] {
        let mut cluster = watched(100, protocols());
        cluster.run_for(S(seconds)).unwrap();
        let all = cluster.running();
        all[..97].iter().for_each(|id| cluster.crash_machine(*id));
        cluster.run_for(S(75)).unwrap();
    }
}

#[test]
fn p15_accepts_joins_crashes_and_slow_messages() {
    let mut cluster = watched(30, protocols());
    cluster.run_for(S(90)).unwrap();
    let all = cluster.running();
    all[..8].iter().for_each(|id| cluster.kill(*id));
    cluster.run_for(S(60)).unwrap();
    cluster.start(8);
    cluster.latency(Latency {
        high: S(1),
        slow: S(2),
        ..Latency::default()
    });
    cluster.run_for(S(120)).unwrap();
    cluster.settle().unwrap();
    assert!(cluster.stats().minutes_judged > 40);
}
