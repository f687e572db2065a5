//! Five silos over three members of MongoDB: the primary goes, another one takes over, and nobody is declared dead for it.

use std::thread;
use std::time::Instant;

use conformance_tests::launch::ReplicaSet;

use crate::outages::goes_on;
use crate::scenarios::{SOON, join};
use crate::store::{Uncontrolled, unless_yours};
use crate::support::{Place, secs};

const MEMBERS: usize = 3;
/// For how many seconds a killed member is gone, in turn: started again at once, and for as long as heartbeats may stand still, twice over. The
/// others serve meanwhile.
const AWAY: [u64; 4] = [0, 2, 6, 15];

/// The primary of this moment is killed, so often in a row; each time the silos beat on while it is still gone, and after it is back.
fn the_primary_is_killed(times: usize) -> Result<(), Uncontrolled> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let set = runtime.block_on(ReplicaSet::start(MEMBERS, None, |_, address| address))?;
    let mut cluster = join(Place::at(set.url(), "stores/primary-killed".to_owned()));
    for kill in 1..=times {
        let killed = runtime.block_on(set.kill_primary())?;
        let since = Instant::now();
        let next = runtime.block_on(set.primary_but(Some(killed)))?;
        let elected = since.elapsed().as_secs_f64();
        cluster.beats_on(SOON);
        let beats = since.elapsed().as_secs_f64();
        thread::sleep(secs(AWAY[kill % AWAY.len()]).saturating_sub(since.elapsed()));
        runtime.block_on(set.start_again(killed))?;
        cluster.beats_on(SOON);
        for silo in &cluster.silos {
            silo.has_table(SOON);
        }
        cluster.is_whole();
        eprintln!(
            "mongodb: kill {kill} of {times} of the primary under {} silos: member {next} took over after {elected:.1} s, everybody's heartbeat \
             is written {beats:.1} s after the kill",
            cluster.silos.len()
        );
    }
    goes_on(&mut cluster);
    Ok(())
}

#[test]
fn the_primary_is_killed_and_another_one_takes_over() {
    unless_yours(the_primary_is_killed(1));
}

#[test]
#[ignore = "several minutes: cargo xtask soak runs it"]
fn the_primary_is_killed_twenty_times_in_a_row() {
    unless_yours(the_primary_is_killed(20));
}
