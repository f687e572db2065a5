//! The store's server fails under five silos, and comes back in several ways.

use std::thread;
use std::time::Instant;

use crate::scenarios::{SOON, join, kill};
use crate::store::{Store, Uncontrolled};
use crate::support::secs;
use crate::support::silos::Cluster;

/// No silo died, a new silo joins, and a crash is detected, without a restart of any silo.
fn works_afterwards(cluster: &mut Cluster) {
    for silo in &cluster.silos {
        silo.sees_table("available", SOON);
    }
    goes_on(cluster);
}

/// The same, where not every silo need have noticed the outage.
pub fn goes_on(cluster: &mut Cluster) {
    cluster.is_whole();
    cluster.join(SOON);
    cluster.is_whole();
    kill(cluster);
}

/// The server is down for twice the time without heartbeats that makes a silo stale.
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

/// The number of kills in a row, in the long run before a release.
const KILLS: usize = 20;
/// For how many seconds the server is down, in turn: restarted at once, before and after every silo
/// must have noticed, and for twice the time without heartbeats that makes a silo stale.
const AWAY: [u64; 4] = [0, 2, 6, 15];
/// After this many seconds every silo has noticed; see [`SOON`] for the time that the report of
/// that may take.
const NOTICED: u64 = 6;

/// No silo is declared dead, and each silo reaches its table again each time.
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

/// The server accepts connections, and answers nothing.
pub fn the_server_is_frozen_for_half_a_minute(store: &Store) -> Result<(), Uncontrolled> {
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

/// The disk was lost: each silo reports that, keeps running, and writes nothing into the new store.
pub fn the_server_comes_back_empty(store: &Store) -> Result<(), Uncontrolled> {
    let mut cluster = join(store.place("server-emptied"));
    store.wipe()?;
    for silo in &cluster.silos {
        silo.sees_table("table_replaced", SOON);
    }
    // Longer than the time without heartbeats that makes a silo stale.
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
    // Rows without a version row would be damage, and a version row would be a cluster.
    let status = cluster.place.run(&["status"]).expect(5);
    assert!(status.err.contains("not_initialized"), "{}", status.err);
    Ok(())
}
