//! Members of clusters without a store, as processes: the demo, questions to a living member, members
//! that are killed and started again, and a network that is split.
#![cfg(feature = "gossip")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "helpers of tests"
)]

mod support;

#[path = "gossip/addresses.rs"]
mod addresses;
#[path = "gossip/arguments.rs"]
mod arguments;
#[path = "gossip/told.rs"]
mod told;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use support::silos::{Process, port};
use support::{PROGRAM, Ran, secs};

/// A folder with what members have in common.
struct Shared {
    folder: tempfile::TempDir,
    points: Vec<SocketAddr>,
    /// What all are started with besides.
    more: Vec<String>,
}

impl Shared {
    fn new(points: Vec<SocketAddr>, config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("secret"), "0123456789abcdef".repeat(4)).unwrap();
        std::fs::write(folder.path().join("members.toml"), config).unwrap();
        let more = Vec::new();
        Self {
            folder,
            points,
            more,
        }
    }

    /// With a table on this machine, which every member reaches, as the arbiter of splits.
    #[cfg(feature = "sqlite")]
    fn with_arbiter(mut self) -> Self {
        let file = self.folder.path().join("arbiter.db");
        let url = format!("sqlite://{}", file.display());
        self.more = vec!["--arbiter".to_owned(), url];
        self
    }

    /// On this machine, with the first three as contact points.
    fn here(members: usize, config: &str) -> Self {
        let mut all: Vec<SocketAddr> = (0..members)
            .map(|_| SocketAddr::from(([127, 0, 0, 1], port())))
            .collect();
        all.sort_unstable();
        Self::new(all, config)
    }

    fn secret(&self) -> PathBuf {
        self.folder.path().join("secret")
    }

    /// The arguments of a member.
    fn member(&self, at: SocketAddr) -> Vec<String> {
        let mut args: Vec<String> = ["gossip", "--json", "--exit-with-stdin", "--listen"]
            .map(str::to_owned)
            .into();
        args.push(at.to_string());
        for point in self.points.iter().take(3) {
            args.extend(["--seed".to_owned(), point.to_string()]);
        }
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        args.extend(["--secret-file".to_owned(), path("secret")]);
        args.extend(["--config".to_owned(), path("members.toml")]);
        args.extend(self.more.iter().cloned());
        args
    }

    fn start(&self, at: SocketAddr) -> Process {
        let mut command = Command::new(PROGRAM);
        command
            .args(self.member(at))
            .env_remove("MEMBERSHIP_CLUSTER");
        Process::spawn(command, at.port())
    }

    fn start_all(&self) -> Vec<Process> {
        self.points.iter().map(|at| self.start(*at)).collect()
    }

    fn ask(&self, args: &[&str]) -> Ran {
        let mut command = Command::new(PROGRAM);
        command
            .arg("gossip")
            .args(args)
            .args(["--secret-file", self.secret().to_str().unwrap()])
            .env_remove("MEMBERSHIP_CLUSTER")
            .stdin(Stdio::null());
        command.output().unwrap().into()
    }
}

/// How quickly things are noticed in tests on one machine.
const QUICK: &str = "\
heartbeat_interval = \"300ms\"
gossip_interval = \"200ms\"
leader_actions_interval = \"200ms\"
seed_node_timeout = \"1s\"

[downing]
stable_after = \"4s\"
";

/// Whether a line is a view on which members agree, of exactly these that are up.
fn agrees_on(event: &Value, up: usize) -> bool {
    let members = event["members"].as_array();
    let members = members.map_or(&[][..], Vec::as_slice);
    event["event"] == "view"
        && event["converged"] == true
        && members.len() == up
        && members.iter().all(|m| m["status"] == "up")
}

/// The version of the newest view of a member, if all agree on it, and on exactly so many that are up.
fn agreed(process: &Process, up: usize) -> Option<String> {
    let lines = process.lines();
    let last = lines.iter().rfind(|line| line.event["event"] == "view")?;
    let version = last.event["version"].as_str()?;
    agrees_on(&last.event, up).then(|| version.to_owned())
}

/// Waits until all agree on the same.
#[track_caller]
fn all_agree(processes: &[Process], up: usize, most: Duration) {
    let until = Instant::now() + most;
    loop {
        let mut versions: Vec<_> = processes.iter().map(|p| agreed(p, up)).collect();
        versions.dedup();
        if matches!(versions.as_slice(), [Some(_)]) {
            return;
        }
        if Instant::now() >= until {
            let last: Vec<_> = processes.iter().map(|p| p.lines().pop()).collect();
            panic!("no agreement on {up} members within {most:?}: {last:#?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn demo(args: &[&str], tmp: &Path) -> Ran {
    let mut command = Command::new(PROGRAM);
    command.args(["demo", "--gossip"]).args(args);
    command.env("TMPDIR", tmp).stdin(Stdio::null());
    command.output().unwrap().into()
}

#[test]
fn the_demo_needs_no_store_and_half_a_minute() {
    let tmp = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let ran = demo(&[], tmp.path()).expect(0);
    assert!(began.elapsed() <= secs(30), "{:?}", began.elapsed());
    for part in [
        "all 5 are up",
        "(SIGKILL)",
        "unreachable",
        "down",
        "4 survivors, one state",
    ] {
        assert!(ran.out.contains(part), "{part}: {}", ran.out);
    }
    assert_eq!(std::fs::read_dir(tmp.path()).unwrap().count(), 0);
    let ran = demo(&["--silos", "4", "--kill", "2"], tmp.path()).expect(2);
    assert!(ran.err.contains("no majority"), "{}", ran.err);
}

#[test]
fn a_living_member_is_asked() {
    let shared = Shared::here(3, QUICK);
    let mut members = shared.start_all();
    all_agree(&members, 3, secs(60));
    let at = |n: usize| shared.points[n].to_string();

    let ran = shared.ask(&["status", "--at", &at(1)]).expect(0);
    for part in ["MEMBER", "3 members", "3 up", "agreed", &at(0)] {
        assert!(ran.out.contains(part), "{part}: {}", ran.out);
    }
    let view = shared.ask(&["status", "--at", &at(1), "--json"]).expect(0);
    assert!(agrees_on(&view.json(), 3), "{}", view.out);

    let ran = shared
        .ask(&["down", "127.0.0.1:1", "--at", &at(0), "--yes"])
        .expect(2);
    assert!(ran.err.contains("is no member"), "{}", ran.err);
    let ran = shared.ask(&["down", &at(2), "--at", &at(0)]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("--yes"), "{}", ran.err);
    shared
        .ask(&["down", &at(2), "--at", &at(0), "--yes"])
        .expect(0);
    let (code, err) = members[2].ends(secs(30));
    assert_eq!(code, Some(3), "{err}");
    assert!(err.contains("was downed"), "{err}");
    members.truncate(2);
    all_agree(&members, 2, secs(30));

    shared.ask(&["leave", "--at", &at(1)]).expect(0);
    let (code, err) = members[1].ends(secs(60));
    assert_eq!(code, Some(0), "{err}");
    all_agree(&members[..1], 1, secs(30));

    let ran = shared.ask(&["status", "--at", &at(1)]).expect(5);
    assert!(ran.err.contains("cannot connect"), "{}", ran.err);
    let mut command = Command::new(PROGRAM);
    command.args(["gossip", "status", "--at", &at(0)]);
    let ran = Ran::from(command.output().unwrap()).expect(2);
    assert!(ran.err.contains("--secret-file"), "{}", ran.err);

    members[0].signal(Signal::TERM);
    assert_eq!(members[0].ends(secs(60)).0, Some(0));
}

#[test]
fn a_member_does_not_start_where_nothing_says_who_may_join() {
    let at = format!("127.0.0.1:{}", port());
    let mut command = Command::new(PROGRAM);
    command.args(["gossip", "--listen", &at, "--seed", &at]);
    let ran = Ran::from(command.output().unwrap()).expect(2);
    assert!(ran.err.contains("--secret-file"), "{}", ran.err);
    let mut command = Command::new(PROGRAM);
    let ran = Ran::from(command.arg("gossip").output().unwrap()).expect(2);
    assert!(ran.err.contains("--seed"), "{}", ran.err);
}

/// All at once, so that nobody is left to join: a new cluster is founded.
#[test]
fn five_that_are_killed_and_started_again_converge() {
    let shared = Shared::here(5, QUICK);
    let members = shared.start_all();
    all_agree(&members, 5, secs(60));
    for member in &members {
        member.signal(Signal::KILL);
    }
    drop(members);
    let began = Instant::now();
    let members = shared.start_all();
    all_agree(&members, 5, secs(60));
    let took = began.elapsed();
    eprintln!("five restarted members converged after {took:?}");
    assert!(took <= secs(15), "{took:?}");
}

/// One after the other, each joins those that are there.
#[test]
fn a_member_that_is_killed_and_started_again_replaces_itself() {
    let shared = Shared::here(3, QUICK);
    let mut members = shared.start_all();
    all_agree(&members, 3, secs(60));
    for place in 0..3 {
        members[place].signal(Signal::KILL);
        // It has its port until it is gone.
        members[place].ends(secs(60));
        members[place] = shared.start(shared.points[place]);
        let began = Instant::now();
        all_agree(&members, 3, secs(60));
        assert!(began.elapsed() <= secs(15), "{:?}", began.elapsed());
    }
}

#[cfg(target_os = "linux")]
mod split {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Network namespaces of five members at one bridge, which is in a namespace of its own.
    struct Machines(String);

    impl Machines {
        fn new(count: u8) -> Self {
            static MADE: AtomicU32 = AtomicU32::new(0);
            let made = MADE.fetch_add(1, Ordering::Relaxed);
            // Two tests of one process may run at the same time.
            let all = Self(format!("g{}-{made}", std::process::id()));
            let hub = all.name(0);
            all.ip(&["netns", "add", &hub]);
            all.ip(&["-n", &hub, "link", "add", "br0", "type", "bridge"]);
            all.ip(&["-n", &hub, "link", "set", "dev", "br0", "up"]);
            for n in 1..=count {
                let (name, port) = (all.name(n), format!("m{n}"));
                all.ip(&["netns", "add", &name]);
                all.ip(&["-n", &name, "link", "set", "dev", "lo", "up"]);
                all.ip(&[
                    "-n", &name, "link", "add", "up0", "type", "veth", "peer", "name", &port,
                    "netns", &hub,
                ]);
                all.ip(&[
                    "-n", &hub, "link", "set", "dev", &port, "master", "br0", "up",
                ]);
                let address = format!("10.78.0.{n}/24");
                all.ip(&["-n", &name, "addr", "add", &address, "dev", "up0"]);
                all.ip(&["-n", &name, "link", "set", "dev", "up0", "up"]);
            }
            all
        }

        fn name(&self, n: u8) -> String {
            format!("{}-{n}", self.0)
        }

        #[track_caller]
        fn ip(&self, args: &[&str]) {
            let ran = Command::new("ip").args(args).output();
            let ran =
                ran.unwrap_or_else(|e| panic!("{e}: this test needs the command `ip` (iproute2)"));
            let err = String::from_utf8_lossy(&ran.stderr);
            assert!(
                ran.status.success(),
                "ip {args:?}: {err} (this test needs root)"
            );
        }

        /// Drops everything that `a` sends to `b`, without a word.
        fn cut(&self, what: &str, a: u8, b: u8) {
            let (name, to) = (self.name(a), format!("10.78.0.{b}/32"));
            self.ip(&["-n", &name, "route", what, "blackhole", &to]);
        }

        fn split(&self, what: &str, one: &[u8], other: &[u8]) {
            for a in one {
                for b in other {
                    self.cut(what, *a, *b);
                    self.cut(what, *b, *a);
                }
            }
        }

        fn start(&self, shared: &Shared, n: u8) -> Process {
            let at = shared.points[usize::from(n) - 1];
            let mut command = Command::new("ip");
            command
                .args(["netns", "exec", &self.name(n), PROGRAM])
                .args(shared.member(at))
                .env_remove("MEMBERSHIP_CLUSTER");
            Process::spawn(command, at.port())
        }
    }

    impl Drop for Machines {
        fn drop(&mut self) {
            for n in 0..=5 {
                let args = ["netns", "del", &self.name(n)];
                let _ = Command::new("ip").args(args).output();
            }
        }
    }

    fn points() -> Vec<SocketAddr> {
        let points = (1..=5).map(|n| SocketAddr::from(([10, 78, 0, n], 7100)));
        points.collect()
    }

    #[test]
    #[ignore = "needs root: .ci/run nightly runs it"]
    fn three_of_five_go_on_and_two_end_and_return() {
        go_on_end_and_return(&Shared::new(points(), QUICK));
    }

    /// All reach the arbiter, also those that do not reach each other.
    #[cfg(feature = "sqlite")]
    #[test]
    #[ignore = "needs root: .ci/run nightly runs it"]
    fn three_of_five_get_the_lease_and_two_end_and_return() {
        let config = format!(
            "{QUICK}strategy = {{ name = \"lease-majority\", delay_for_minority = \"1s\", release_after = \"5s\" }}\n"
        );
        go_on_end_and_return(&Shared::new(points(), &config).with_arbiter());
    }

    fn go_on_end_and_return(shared: &Shared) {
        let machines = Machines::new(5);
        let mut members: Vec<Process> = (1..=5).map(|n| machines.start(shared, n)).collect();
        all_agree(&members, 5, secs(60));
        machines.split("add", &[1, 2, 3], &[4, 5]);
        for loser in &mut members[3..] {
            let (code, err) = loser.ends(secs(60));
            assert_eq!(code, Some(3), "{err}");
        }
        all_agree(&members[..3], 3, secs(60));
        for winner in &mut members[..3] {
            assert!(winner.is_running());
        }
        machines.split("del", &[1, 2, 3], &[4, 5]);
        members.truncate(3);
        members.extend((4..=5).map(|n| machines.start(shared, n)));
        all_agree(&members, 5, secs(60));
        let founding = |process: &Process| {
            let lines = process.lines();
            let last = lines.iter().rfind(|line| line.event["event"] == "view");
            last.unwrap().event["founding"].clone()
        };
        assert!(members.iter().all(|m| founding(m) == founding(&members[0])));
    }
}
