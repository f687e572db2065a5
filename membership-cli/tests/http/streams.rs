//! Streams of events: they go on where they were cut, and 500 of them cost little.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::client::{Stream, address, get, has};
use super::support::silos::{Cluster, Process, port};

fn start(silos: usize) -> Cluster {
    let mut cluster = Cluster::start(0, "local");
    for _ in 0..silos {
        let silo = Process::start(&cluster.place, port(), "local", &["--http", "127.0.0.1:0"]);
        cluster.silos.push(silo);
    }
    cluster.all_active(Duration::from_secs(40));
    cluster
}

#[test]
fn a_stream_goes_on_after_the_last_event_that_came() {
    let mut cluster = start(2);
    let at = address(&cluster.silos[0]);
    let mut stream = Stream::open(at, None);
    let first = stream.next().unwrap();
    assert_eq!(
        (
            first.name.as_str(),
            first.data["members"].as_array().unwrap().len()
        ),
        ("view", 2)
    );
    drop(stream);
    cluster.join(Duration::from_secs(30));
    let third = cluster.address(2);
    let mut again = Stream::open(at, Some(&first.id));
    let events = again.until("the third", |e| has(e, &third, "Active"));
    assert!(events.iter().all(|e| e.name != "view"), "{events:#?}");
    let ids: Vec<&str> = events.iter().map(|e| e.id.as_str()).collect();
    let mut unique = ids.clone();
    unique.dedup();
    assert_eq!(ids, unique);
    // Another silo does not know what that id means, and gives everything.
    let other = address(&cluster.silos[1]);
    let events =
        Stream::open(other, Some(&first.id)).until("the third", |e| has(e, &third, "Active"));
    assert_eq!(events[0].name, "view", "{events:#?}");
    // The end is told, and the stream ends.
    cluster.silos[0].signal(Signal::TERM);
    let events = again.until("the end", |e| e.name == "terminated");
    assert_eq!(events.last().unwrap().data["cause"], "left");
    assert!(again.next().is_none());
}

fn resident(silo: &Process) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", silo.id())).unwrap();
    let line = status
        .lines()
        .find_map(|l| l.strip_prefix("VmRSS:"))
        .unwrap();
    let kib: usize = line.trim().trim_end_matches(" kB").parse().unwrap();
    kib * 1024
}

fn misses(cluster: &Cluster) -> u64 {
    let of = |silo: &Process| {
        let text = get(address(silo), "/metrics").body;
        let lines = text
            .lines()
            .filter(|l| l.starts_with("membership_probe_misses_total{"));
        lines
            .map(|l| l.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
            .sum::<u64>()
    };
    cluster.silos.iter().map(of).sum()
}

/// Makes versions for this long, in which no silo changes; gives how many probes were missed.
fn versions(cluster: &Cluster, lasts: Duration) -> u64 {
    let (began, missed) = (Instant::now(), misses(cluster));
    for limit in (3..=4).cycle() {
        let change = format!("num_missed_i_am_alive_limit={limit}");
        cluster.place.run(&["settings", "set", &change]).expect(0);
        std::thread::sleep(Duration::from_millis(200));
        if began.elapsed() >= lasts {
            break;
        }
    }
    misses(cluster) - missed
}

/// Whoever runs `alone` has the machine for itself, so that no silo waits for its time.
fn many_clients(clients: usize, lasts: Duration, alone: bool) {
    let cluster = start(5);
    let at = address(&cluster.silos[0]);
    // What the first clients allocate for all later ones.
    drop((0..20).map(|_| Stream::open(at, None)).collect::<Vec<_>>());
    let missed_without = versions(&cluster, lasts);
    let before = resident(&cluster.silos[0]);
    let mut streams: Vec<Stream> = (0..clients).map(|_| Stream::open(at, None)).collect();
    let missed = versions(&cluster, lasts);
    let with_clients = resident(&cluster.silos[0]);
    let newest = get(at, "/api/v1/view").json(200)["version"]
        .as_u64()
        .unwrap();
    for stream in &mut streams {
        stream.until("the newest version", |e| {
            e.data["version"].as_u64() >= Some(newest) && !e.data["members"].is_null()
        });
    }
    let each = with_clients.saturating_sub(before) / clients;
    println!(
        "{clients} clients, {newest} versions: {each} bytes of memory for each client; probes missed: {missed}, without clients {missed_without}"
    );
    assert!(each <= 32 << 10, "{each} bytes for each client");
    if alone {
        assert!(missed <= 2 * missed_without, "probes were missed: {missed}");
    }
}

#[test]
fn five_hundred_clients_see_the_newest_version_and_cost_little() {
    many_clients(500, Duration::from_secs(5), false);
}

#[test]
#[ignore = "a minute; `.ci/run nightly` runs it"]
fn five_hundred_clients_for_a_minute() {
    many_clients(500, Duration::from_secs(60), true);
}
