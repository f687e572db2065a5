//! The store's server goes under five silos, and comes back in one way or another.

use std::thread;
use std::time::Instant;

use crate::scenarios::{SOON, join, kill};
use crate::store::{Store, Uncontrolled};
use crate::support::secs;
use crate::support::silos::Cluster;

/// Nobody died of it, a newcomer gets in, and a crash is noticed: without a restart of any silo.
fn works_afterwards(cluster: &mut Cluster) {
    for silo in &cluster.silos {
        silo.sees_table("available", SOON);
    }
    goes_on(cluster);
}

/// The same, where not everybody need have noticed anything.
pub fn goes_on(cluster: &mut Cluster) {
    cluster.is_whole();
    cluster.join(SOON);
    cluster.is_whole();
    kill(cluster);
}

/// Down for longer than heartbeats may stand still, twice over.
pub fn the_server_is_killed_and_started_again(store: &Store) -> Result<(), Uncontrolled> {
    let mut cluster = join(store.place("server-killed"));
    store.kill()?;
    let since = Instant::now();
    for silo in &cluster.silos {
        silo.sees_table("unavailable", SOON);
    }
    thread::sleep(secs(15).saturating_sub(since.elapsed()));
    store.start_again()?;
    works_afterwards(&mut cluster);
    Ok(())
}

/// Kills in a row, before something is called finished.
const KILLS: usize = 20;
/// For how many seconds the server is gone, in turn: started again at once, before and after anybody must have noticed, and for longer than
/// heartbeats may stand still, twice over.
const AWAY: [u64; 4] = [0, 2, 6, 15];
/// After so many seconds every silo has noticed; see [`SOON`] for the time it may take to say so.
const NOTICED: u64 = 6;

/// Nobody is declared dead, and each silo finds its way back each time.
pub fn the_server_is_killed_twenty_times_in_a_row(store: &Store) -> Result<(), Uncontrolled> {
    let mut cluster = join(store.place("server-killed-often"));
    for kill in 1..=KILLS {
        let away = AWAY[kill % AWAY.len()];
        store.kill()?;
        let since = Instant::now();
        if away >= NOTICED {
            for silo in &cluster.silos {
                silo.sees_table("unavailable", SOON);
            }
        }
        thread::sleep(secs(away).saturating_sub(since.elapsed()));
        store.start_again()?;
        let (gone, back) = (since.elapsed(), Instant::now());
        cluster.heartbeats_go_on(SOON);
        for silo in &cluster.silos {
            silo.has_table(SOON);
        }
        cluster.is_whole();
        let (kind, gone, back) = (
            store.kind(),
            gone.as_secs_f64(),
            back.elapsed().as_secs_f64(),
        );
        eprintln!(
            "{kind}: kill {kill} of {KILLS} under {} silos: away for {gone:.1} s, whole {back:.1} s later",
            cluster.silos.len()
        );
    }
    works_afterwards(&mut cluster);
    Ok(())
}

/// It takes connections, and answers nothing.
pub fn the_server_stands_still_for_half_a_minute(store: &Store) -> Result<(), Uncontrolled> {
    let mut cluster = join(store.place("server-stopped"));
    store.pause()?;
    let since = Instant::now();
    for silo in &cluster.silos {
        silo.sees_table("unavailable", SOON);
    }
    thread::sleep(secs(30).saturating_sub(since.elapsed()));
    store.resume()?;
    works_afterwards(&mut cluster);
    Ok(())
}

/// The disk was lost: each silo says so, keeps running, and leaves the new store alone.
pub fn the_server_comes_back_empty(store: &Store) -> Result<(), Uncontrolled> {
    let mut cluster = join(store.place("server-emptied"));
    store.wipe()?;
    for silo in &cluster.silos {
        silo.sees_table("table_replaced", SOON);
    }
    // Longer than heartbeats may stand still.
    thread::sleep(secs(8));
    cluster.is_whole();
    for silo in &cluster.silos {
        silo.sees_table("table_replaced", secs(1));
    }
    assert_eq!(
        store.contents().unwrap_or_default(),
        "",
        "something was written into the empty store"
    );
    // Rows without a version row would be damage, and a version row a cluster.
    let status = cluster.place.run(&["status"]).expect(5);
    assert!(status.err.contains("not_initialized"), "{}", status.err);
    Ok(())
}
