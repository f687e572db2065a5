//! Somebody who reaches the HTTP port, or has the table, and means harm: a supervisor is answered, the
//! silo keeps its files and its memory, and what is shown is text.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::client::{PATIENCE, Stream, address, get};
use super::page::{dashboard, state};
use super::support::silos::{Cluster, Process, port};
use super::support::{PROGRAM, Place, active};

/// A silo that may have so many open files.
fn limited(place: &Place, files: u32, more: &[&str]) -> Process {
    let mut command = place.command(&[]);
    let program = command.get_program().to_owned();
    assert_eq!(program, PROGRAM);
    let mut args = vec![
        "silo".to_owned(),
        "--json".to_owned(),
        "--exit-with-stdin".to_owned(),
        "--preset".to_owned(),
        "local".to_owned(),
    ];
    let port = port();
    args.extend(["--listen".to_owned(), format!("127.0.0.1:{port}")]);
    args.extend(more.iter().map(|text| (*text).to_owned()));
    let envs: Vec<_> = command
        .get_envs()
        .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
        .collect();
    command = std::process::Command::new("sh");
    command
        .args(["-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\"")])
        .arg(program)
        .args(args)
        .envs(envs);
    Process::spawn(command, port)
}

/// Connections on which this was sent, and of which nothing is read.
fn connections(at: SocketAddr, number: usize, sends: &str) -> Vec<TcpStream> {
    let open = |_| {
        let mut stream = TcpStream::connect(at).unwrap();
        // The server may have closed it already.
        let _ = stream.write_all(sends.as_bytes());
        stream
    };
    (0..number).map(open).collect()
}

fn open_files(silo: &Process) -> usize {
    let folder = format!("/proc/{}/fd", silo.id());
    std::fs::read_dir(folder).unwrap().count()
}

fn resident(process: &Process) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let kib: usize = line
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    kib * 1024
}

/// Those of the connections on which something has come.
fn answered(connections: &[TcpStream]) -> usize {
    let has = |stream: &&TcpStream| {
        stream.set_nonblocking(true).unwrap();
        stream.peek(&mut [0]).is_ok_and(|bytes| bytes > 0)
    };
    connections.iter().filter(has).count()
}

#[test]
fn connections_leave_a_silo_the_open_files_that_it_needs() {
    const FILES: u32 = 200;
    let mut cluster = Cluster::start(0, "local");
    let http = ["--http", "127.0.0.1:0"];
    cluster.silos.push(limited(&cluster.place, FILES, &http));
    cluster.all_active(PATIENCE);
    let at = address(&cluster.silos[0]);
    let strangers = connections(at, 2 * FILES as usize, "GET / HTTP/1.1\r\nX: ");
    assert_eq!(get(at, "/livez").body, "live\n");
    let open = open_files(&cluster.silos[0]);
    assert!(open < FILES as usize * 3 / 4, "{open} of {FILES} are open");
    // Each newcomer needs connections with it in both directions.
    cluster.join(PATIENCE);
    cluster.join(PATIENCE);
    cluster.is_whole();
    drop(strangers);
}

#[test]
fn a_stream_without_its_body_keeps_no_place() {
    let place = Place::new();
    let silo = limited(&place, 200, &["--http", "127.0.0.1:0"]);
    silo.address(PATIENCE);
    let at = address(&silo);
    let head = "HEAD /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut strangers = connections(at, 300, head);
    for _ in 0..3 {
        assert_eq!(get(at, "/livez").body, "live\n");
        strangers.extend(connections(at, 20, head));
    }
    let mut stream = Stream::open(at, None);
    assert_eq!(stream.next().unwrap().name, "view");
}

/// A dashboard of so many silos, each with so long a name.
fn large(silos: u16, name: usize) -> (Place, Process, SocketAddr) {
    let place = Place::new();
    let table = place.initialize();
    let rows = (0..silos).map(|n| {
        let mut entry = active(20_000 + n);
        entry.info.silo_name = "x".repeat(name);
        entry
    });
    place.insert(&table, rows.collect());
    let (process, at) = dashboard(&place, &[]);
    assert_eq!(
        state(at)["members"].as_array().map(Vec::len),
        Some(silos.into())
    );
    (place, process, at)
}

#[test]
fn whoever_asks_whether_it_lives_does_not_wait_for_those_who_ask_for_much() {
    let (_place, _dashboard, at) = large(1_000, 0);
    let page = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let about = format!(
        "GET /api/v1/about/{} HTTP/1.1\r\nHost: localhost\r\n\r\n",
        super::support::silo(20_500)
    );
    let mut strangers = connections(at, 200, page);
    strangers.extend(connections(at, 200, &about));
    let before = answered(&strangers);
    assert_eq!(get(at, "/livez").body, "live\n");
    let meanwhile = answered(&strangers) - before;
    println!("{before} were answered before, and {meanwhile} meanwhile");
    // The one that was at work, and those that this process lets pass while it looks.
    assert!(meanwhile < 60, "{meanwhile} others were answered first");
}

#[test]
fn answers_that_nobody_reads_take_a_bounded_memory() {
    const MIB: usize = 1 << 20;
    let (_place, dashboard, at) = large(1_000, 8 << 10);
    for path in ["/api/v1/status", "/"] {
        // What one answer takes.
        assert_eq!(get(at, path).status, 200);
        let before = resident(&dashboard);
        let asks = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let strangers = connections(at, 24, &asks);
        // Each of them has been answered, or cut.
        let until = Instant::now() + 3 * PATIENCE;
        let ends = |stream: &TcpStream| {
            stream.set_nonblocking(true).unwrap();
            let peeked = stream.peek(&mut [0]);
            peeked.is_ok_and(|_| true) || stream.take_error().unwrap().is_some()
        };
        while !strangers.iter().all(ends) {
            assert!(Instant::now() < until, "{path}");
            std::thread::sleep(Duration::from_millis(50));
        }
        let more = resident(&dashboard).saturating_sub(before) / MIB;
        println!("{path}: {more} MiB more for 24 answers of 8 MiB");
        assert!(more < 110, "{path}: {more} MiB");
        assert_eq!(get(at, "/livez").body, "live\n");
        drop(strangers);
    }
    assert_eq!(state(at)["members"].as_array().map(Vec::len), Some(1_000));
}

#[test]
fn whoever_holds_connections_delays_no_end() {
    let mut cluster = Cluster::start(0, "local");
    let silo = Process::start(&cluster.place, port(), "local", &["--http", "127.0.0.1:0"]);
    cluster.silos.push(silo);
    cluster.all_active(PATIENCE);
    let at = address(&cluster.silos[0]);
    let mut strangers = Vec::new();
    for sends in [
        "",
        "GET / HTTP/1.1\r\nX: ",
        "POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
        "GET /api/v1/view?wait=999999&timeout=300s HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /api/v1/status?wait=999999&timeout=300s HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ] {
        strangers.extend(connections(at, 20, sends));
    }
    assert_eq!(get(at, "/livez").body, "live\n");
    cluster.silos[0].signal(Signal::TERM);
    let (code, err) = cluster.silos[0].ends(PATIENCE);
    assert_eq!(code, Some(0), "{err}");
    // Those that waited for something are told.
    let mut last = strangers.pop().unwrap();
    last.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = last.read(&mut [0]);
}
