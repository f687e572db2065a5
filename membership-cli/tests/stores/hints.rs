//! Views by hints alone: silos do not inform each other and read the table once a minute, so that
//! they depend on the hints of the store.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::scenarios::SOON;
use crate::store::Store;
use crate::support::secs;
use crate::support::silos::{Cluster, Process, port};

/// How many silos are killed, one after the other.
const DEATHS: usize = 3;
/// How long after the commit of a death the other silos may publish it, as the median over deaths
/// and survivors: the promise to users.
const BEHIND: Duration = Duration::from_millis(500);
/// The limit for each single publication, on a busy machine: far less than the period of reads.
const BY_HINT: Duration = Duration::from_secs(15);

const CONFIG: &str =
    "preset = \"local\"\nenable_dissemination = false\ntable_refresh_period = \"60s\"\n";

/// Every survivor publishes a death soon after the silo that committed it.
pub fn views_follow_hints(store: &Store) {
    let place = store.place("hints");
    let file = place.file().with_file_name("silo.toml");
    std::fs::write(&file, CONFIG).unwrap();
    let config = ["--config", file.to_str().unwrap()];
    let silos = (0..3 + DEATHS)
        .map(|_| Process::start(&place, port(), "local", &config))
        .collect();
    let mut cluster = Cluster {
        place,
        preset: "local",
        silos,
    };
    cluster.all_active(SOON);
    cluster.agree(SOON);
    let mut all: Vec<Duration> = Vec::new();
    for death in 1..=DEATHS {
        let last = cluster.silos.len() - 1;
        let name = cluster.address(last);
        cluster.silos[last].signal(Signal::KILL);
        let killed = Instant::now();
        cluster.silos.truncate(last);
        let mut seen: Vec<Instant> = cluster
            .silos
            .iter()
            .map(|silo| silo.sees_dead(&name, "voted", secs(40)))
            .collect();
        seen.sort();
        let behind: Vec<Duration> = seen.iter().map(|at| *at - seen[0]).collect();
        let millis: Vec<String> = behind[1..]
            .iter()
            .map(|behind| behind.as_millis().to_string())
            .collect();
        let (kind, voted) = (store.kind(), (seen[0] - killed).as_secs_f64());
        eprintln!(
            "{kind}: death {death} committed after {voted:.1} s; the other survivors publish it {} ms later",
            millis.join(", ")
        );
        assert!(behind.iter().all(|behind| *behind < BY_HINT), "{behind:?}");
        all.extend(&behind[1..]);
        cluster.agree(SOON);
    }
    all.sort();
    assert!(
        all[all.len() / 2] <= BEHIND,
        "the median is over {BEHIND:?}: {all:?}"
    );
}
