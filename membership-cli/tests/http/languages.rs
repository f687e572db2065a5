//! The programs of `examples/follow`: each sees a death soon after the silo that it asks.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::client::{PATIENCE, address};
use super::support::silos::{Cluster, Process, port};

/// After the silo that is asked.
const SOON: Duration = Duration::from_millis(100);

struct Follower {
    language: &'static str,
    child: Child,
    lines: Receiver<(Instant, String)>,
}

impl Follower {
    fn start(language: &'static str, mut command: Command, urls: &[&str]) -> Self {
        let command = command.args(urls).stdin(Stdio::null());
        let command = command.stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = sender.send((Instant::now(), line));
            }
        });
        Self {
            language,
            child,
            lines,
        }
    }

    /// When it showed this line.
    #[track_caller]
    fn shows(&self, wanted: &str) -> Instant {
        loop {
            let got = self.lines.recv_timeout(PATIENCE);
            let (at, line) = got.unwrap_or_else(|_| panic!("{}: no `{wanted}`", self.language));
            if line == wanted {
                return at;
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn exists(program: &str) -> bool {
    let version = if program == "go" {
        "version"
    } else {
        "--version"
    };
    let mut command = Command::new(program);
    let ran = command
        .arg(version)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    ran.is_ok_and(|status| status.success())
}

/// The programs of the languages of this machine.
fn commands(folder: &Path) -> Vec<(&'static str, Command)> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/follow");
    let file = |name: &str| -> PathBuf { examples.join(name) };
    let mut commands = Vec::new();
    for (language, program) in [("Python", "python3"), ("Node.js", "node"), ("Go", "go")] {
        if !exists(program) {
            eprintln!("{program} is not on this machine: the example in {language} is not run");
            continue;
        }
        let command = match language {
            "Python" => {
                let mut command = Command::new(program);
                command.arg(file("follow.py"));
                command
            }
            "Node.js" => {
                let mut command = Command::new(program);
                command.arg(file("follow.mjs"));
                command
            }
            _ => {
                let built = folder.join("follow");
                // Kept between runs: the standard library takes longest.
                let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-cache");
                let mut build = Command::new(program);
                build
                    .args(["build", "-o"])
                    .arg(&built)
                    .arg(file("follow.go"));
                build.env("GOCACHE", cache).env("GOTOOLCHAIN", "local");
                assert!(build.status().unwrap().success());
                Command::new(built)
            }
        };
        commands.push((language, command));
    }
    commands
}

#[test]
fn a_death_is_seen_soon_in_every_language() {
    let folder = tempfile::tempdir().unwrap();
    let commands = commands(folder.path());
    assert!(
        !commands.is_empty(),
        "none of python3, node and go is on this machine"
    );
    let mut cluster = Cluster::started(4, "local");
    let asked = Process::start(&cluster.place, port(), "local", &["--http", "127.0.0.1:0"]);
    let url = format!("http://{}", address(&asked));
    cluster.silos.push(asked);
    cluster.all_active(PATIENCE);
    let followers: Vec<Follower> = commands
        .into_iter()
        .map(|(language, command)| Follower::start(language, command, &[&url]))
        .collect();
    let first = cluster.address(0);
    for follower in &followers {
        follower.shows(&format!("{first} Active"));
    }
    // The best of two, because a machine with other work may be late once.
    let mut best = vec![Duration::MAX; followers.len()];
    for index in [1, 2] {
        let victim = cluster.address(index);
        cluster.silos[index].signal(Signal::KILL);
        let seen = cluster.silos[4].sees_dead(&victim, "voted", PATIENCE);
        for (follower, best) in followers.iter().zip(&mut best) {
            let late = follower
                .shows(&format!("{victim} Dead"))
                .saturating_duration_since(seen);
            println!("{}: {late:?} after the silo", follower.language);
            *best = late.min(*best);
        }
    }
    for (follower, best) in followers.iter().zip(&best) {
        assert!(*best <= SOON, "{}: {best:?}", follower.language);
    }
}

/// The silo that is asked dies and comes back, and then another one is asked.
#[test]
fn a_follower_goes_on_when_the_silo_that_it_asks_is_gone_and_when_it_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::started(3, "local");
    let start =
        |at: u16, http: &str| Process::start(&cluster.place, at, "local", &["--http", http]);
    let at = port();
    let mut asked = start(at, "127.0.0.1:0");
    let there = address(&asked).to_string();
    let other = start(port(), "127.0.0.1:0");
    let urls = [
        format!("http://{there}"),
        format!("http://{}", address(&other)),
    ];
    let follow = |urls: &[&str]| -> Vec<Follower> {
        commands(folder.path())
            .into_iter()
            .map(|(language, command)| Follower::start(language, command, urls))
            .collect()
    };
    let alone = follow(&[&urls[0]]);
    let both = follow(&[&urls[0], &urls[1]]);
    let first = asked.address(PATIENCE);
    for follower in alone.iter().chain(&both) {
        follower.shows(&format!("{first} Active"));
    }
    asked.signal(Signal::KILL);
    asked.ends(PATIENCE);
    for follower in &both {
        follower.shows(&format!("{first} Dead"));
    }
    let again = start(at, &there);
    let second = again.address(PATIENCE);
    for follower in &alone {
        follower.shows(&format!("{first} Dead"));
    }
    for follower in alone.iter().chain(&both) {
        follower.shows(&format!("{second} Active"));
    }
    let victim = cluster.address(0);
    cluster.silos[0].signal(Signal::KILL);
    for follower in alone.iter().chain(&both) {
        follower.shows(&format!("{victim} Dead"));
    }
}
