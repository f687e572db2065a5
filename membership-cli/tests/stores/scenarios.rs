//! Scenarios of five silos with the preset `local`, over any table.

use std::time::Duration;

use rustix::process::Signal;

use crate::support::Place;
use crate::support::silos::{Cluster, Process};

/// The deadline for conditions that take a few seconds on an idle machine. Most runs share two
/// cores with others.
pub const SOON: Duration = Duration::from_secs(45);

/// Five silos that join publish one view.
pub fn join(place: Place) -> Cluster {
    let cluster = Cluster::start_at(place, 5, "local");
    cluster.all_active(SOON);
    cluster.agree(SOON);
    cluster
}

/// The last silo is killed; the others vote it out and agree.
pub fn kill(cluster: &mut Cluster) {
    let last = cluster.silos.len() - 1;
    let name = cluster.address(last);
    cluster.silos[last].signal(Signal::KILL);
    cluster.silos.truncate(last);
    for silo in &cluster.silos {
        silo.sees_dead(&name, "voted", SOON);
    }
    cluster.agree(SOON);
}

/// The last silo is asked to leave; the others see that it left, and it ends with success.
fn leave(cluster: &mut Cluster) {
    let last = cluster.silos.len() - 1;
    let name = cluster.address(last);
    let mut leaving = cluster.silos.pop().unwrap();
    leaving.signal(Signal::TERM);
    for silo in &cluster.silos {
        silo.sees_dead(&name, "left", SOON);
    }
    let (code, err) = leaving.ends(SOON);
    assert_eq!(code, Some(0), "{err}");
    cluster.agree(SOON);
}

/// All silos are killed at the same time and started again on the same ports, over the unchanged
/// table.
fn restart(cluster: &mut Cluster) {
    let before = status(cluster);
    let ports = cluster.kill_all();
    cluster.silos = ports
        .into_iter()
        .map(|port| Process::start(&cluster.place, port, cluster.preset, &[]))
        .collect();
    cluster.all_active(SOON);
    cluster.agree(SOON);
    let after = status(cluster);
    assert_eq!(before["table_id"], after["table_id"], "the table was kept");
    assert!(before["version"].as_u64() < after["version"].as_u64());
}

fn status(cluster: &Cluster) -> serde_json::Value {
    cluster.place.run(&["status", "--json"]).expect(0).json()
}

/// The whole life of a cluster, and the removal of its table.
pub fn silos_come_and_go(place: Place) {
    let mut cluster = join(place);
    kill(&mut cluster);
    cluster.join(SOON);
    leave(&mut cluster);
    cluster.join(SOON);
    restart(&mut cluster);
    cluster.kill_all();
    let name = cluster.place.cluster();
    cluster
        .place
        .run(&["delete", "--cluster", name, "--yes"])
        .expect(0);
    cluster.place.run(&["status"]).expect(5);
}
