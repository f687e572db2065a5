//! Five silos over three servers that form one cluster: the leader is killed, another server takes
//! over, and no silo is declared dead.

use std::thread;
use std::time::Instant;

use membership_testbed::{Kind, ServerSet};

use crate::outages::goes_on;
use crate::scenarios::{SOON, join};
use crate::store::{Uncontrolled, unless_external};
use crate::support::{Place, secs};

const SERVERS: usize = 3;
/// For how many seconds a killed server stays down, in turn: from an immediate restart to twice the
/// time without heartbeats that makes a silo stale. The other servers serve meanwhile.
const AWAY: [u64; 4] = [0, 2, 6, 15];

/// Kills the current leader this many times in a row. Each time, the heartbeats of the silos
/// continue while that server is down, and after it is up again.
pub fn the_leader_is_killed(kind: Kind, times: usize) {
    unless_external(kill_leaders(kind, times));
}

fn kill_leaders(kind: Kind, times: usize) -> Result<(), Uncontrolled> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let servers = runtime.block_on(ServerSet::start(kind, SERVERS, None))?;
    let mut cluster = join(Place::at(servers.url(), "stores/leader-killed".to_owned()));
    for kill in 1..=times {
        let killed = runtime.block_on(servers.kill_leader())?;
        let since = Instant::now();
        let next = runtime.block_on(servers.leader_but(Some(killed)))?;
        let elected = since.elapsed().as_secs_f64();
        cluster.heartbeats_go_on(SOON);
        let written = since.elapsed().as_secs_f64();
        thread::sleep(secs(AWAY[kill % AWAY.len()]).saturating_sub(since.elapsed()));
        runtime.block_on(servers.start_again(killed))?;
        cluster.heartbeats_go_on(SOON);
        for silo in &cluster.silos {
            silo.has_table(SOON);
        }
        cluster.is_whole();
        eprintln!(
            "{kind}: kill {kill} of {times} of the leader under {} silos: server {next} took over after {elected:.1} s, every silo's \
             heartbeat is written {written:.1} s after the kill",
            cluster.silos.len()
        );
    }
    goes_on(&mut cluster);
    Ok(())
}
