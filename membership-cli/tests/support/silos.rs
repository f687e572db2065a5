//! Real silos as processes. A test starts them, reads their events, sends them signals; they end
//! when the test ends, whether it passes or fails.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::Place;

/// Ports below the range that the system assigns by itself; each test program has another part of
/// it.
static NEXT: AtomicU16 = AtomicU16::new(0);

/// A free port of the loopback interface.
pub fn port() -> u16 {
    let base = 12_000 + u16::try_from(std::process::id() % 90).unwrap() * 200;
    loop {
        let port = base + NEXT.fetch_add(1, Ordering::Relaxed) % 200;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A line of `--json` and the time when it arrived.
#[derive(Clone, Debug)]
pub struct Line {
    pub at: Instant,
    pub event: Value,
}

#[derive(Default)]
struct Heard {
    lines: Vec<Line>,
    ended: bool,
}

/// One silo process.
pub struct Process {
    pub port: u16,
    child: Child,
    _stdin: Option<ChildStdin>,
    heard: Arc<(Mutex<Heard>, Condvar)>,
    err: Option<JoinHandle<String>>,
}

impl Process {
    /// `membership silo --json` on the place's table, listening on a port of 127.0.0.1.
    pub fn start(place: &Place, port: u16, preset: &str, more: &[&str]) -> Self {
        let listen = format!("127.0.0.1:{port}");
        let mut args = vec![
            "silo",
            "--json",
            "--exit-with-stdin",
            "--listen",
            &listen,
            "--preset",
            preset,
        ];
        args.extend(more);
        Self::spawn(place.command(&args), port)
    }

    pub fn spawn(mut command: Command, port: u16) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let heard = Arc::new((Mutex::new(Heard::default()), Condvar::new()));
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let told = heard.clone();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let event = serde_json::from_str(&line).unwrap_or(Value::String(line));
                told.0.lock().unwrap().lines.push(Line {
                    at: Instant::now(),
                    event,
                });
                told.1.notify_all();
            }
            told.0.lock().unwrap().ended = true;
            told.1.notify_all();
        });
        let mut stderr = child.stderr.take().unwrap();
        let err = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        let stdin = child.stdin.take();
        Self {
            port,
            child,
            _stdin: stdin,
            heard,
            err: Some(err),
        }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub fn lines(&self) -> Vec<Line> {
        self.heard.0.lock().unwrap().lines.clone()
    }

    /// Waits until the printed lines satisfy `done`.
    #[track_caller]
    pub fn wait<T>(
        &self,
        what: &str,
        most: Duration,
        mut done: impl FnMut(&[Line]) -> Option<T>,
    ) -> T {
        let until = Instant::now() + most;
        let mut heard = self.heard.0.lock().unwrap();
        loop {
            if let Some(found) = done(&heard.lines) {
                return found;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || heard.ended {
                let last: Vec<&Line> = heard.lines.iter().rev().take(3).collect();
                let end = if heard.ended { " before it ended" } else { "" };
                panic!(
                    "127.0.0.1:{} did not show `{what}` within {most:?}{end}; last: {last:#?}",
                    self.port
                );
            }
            heard = self.heard.1.wait_timeout(heard, left).unwrap().0;
        }
    }

    /// Its own address, once it is Active.
    #[track_caller]
    pub fn address(&self, most: Duration) -> String {
        self.wait("active", most, |lines| {
            let active = lines.iter().find(|l| l.event["event"] == "active")?;
            Some(active.event["silo"].as_str().unwrap().to_owned())
        })
    }

    /// Waits until the last line about its table reports this state.
    #[track_caller]
    pub fn sees_table(&self, state: &str, most: Duration) {
        self.wait(&format!("the table {state}"), most, |lines| {
            let last = lines.iter().rfind(|l| l.event["event"] == "table")?;
            (last.event["state"] == state).then_some(())
        });
    }

    /// Waits until the last line about its table, if there is one, reports that the table is
    /// available.
    #[track_caller]
    pub fn has_table(&self, most: Duration) {
        self.wait("the table available", most, |lines| {
            let last = lines.iter().rfind(|l| l.event["event"] == "table");
            last.is_none_or(|l| l.event["state"] == "available")
                .then_some(())
        });
    }

    /// No line about its table said that it is another one, or that it was rolled back.
    #[track_caller]
    #[allow(dead_code, reason = "only the tests of several servers ask")]
    pub fn never_lost_its_table(&self) {
        let lines = self.lines();
        let lost = lines.iter().find(|l| {
            l.event["event"] == "table"
                && ["table_replaced", "table_rolled_back", "not_initialized"]
                    .iter()
                    .any(|state| l.event["state"] == *state)
        });
        assert!(lost.is_none(), "{:?}", lost.map(|l| &l.event));
    }

    /// Waits for a view in which exactly `active` silos are Active; returns when it arrived.
    #[track_caller]
    pub fn sees_active(&self, active: usize, most: Duration) -> Instant {
        self.wait(&format!("{active} active"), most, |lines| {
            let last = lines.iter().rfind(|l| l.event["event"] == "view")?;
            (count(&last.event, "Active") == active).then_some(last.at)
        })
    }

    /// Waits for a view in which a silo is Dead with this cause; returns when it arrived.
    #[track_caller]
    pub fn sees_dead(&self, silo: &str, cause: &str, most: Duration) -> Instant {
        self.wait(&format!("{silo} dead, {cause}"), most, |lines| {
            let line = lines
                .iter()
                .find(|l| members(&l.event).any(|m| m["silo"] == silo && m["status"] == "Dead"))?;
            let member = members(&line.event).find(|m| m["silo"] == silo).unwrap();
            assert_eq!(member["cause"], cause, "{}", line.event);
            Some(line.at)
        })
    }

    /// No silo of its newest view is Dead.
    #[track_caller]
    pub fn sees_nobody_dead(&self) {
        let lines = self.lines();
        let last = lines.iter().rfind(|l| l.event["event"] == "view").unwrap();
        assert_eq!(count(&last.event, "Dead"), 0, "{}", last.event);
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for the end of the process: its exit code and its text on standard error.
    #[track_caller]
    pub fn ends(&mut self, most: Duration) -> (Option<i32>, String) {
        let until = Instant::now() + most;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                let err = self
                    .err
                    .take()
                    .map(|t| t.join().unwrap())
                    .unwrap_or_default();
                assert!(!err.contains("panicked"), "{err}");
                return (status.code(), err);
            }
            assert!(
                Instant::now() < until,
                "127.0.0.1:{} still runs after {most:?}: {:#?}",
                self.port,
                self.lines().last()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking()
            && let Some(Ok(err)) = self.err.take().map(JoinHandle::join)
            && !err.is_empty()
        {
            eprintln!("127.0.0.1:{} wrote:\n{err}", self.port);
        }
    }
}

pub fn members(view: &Value) -> impl Iterator<Item = &Value> {
    view["members"].as_array().into_iter().flatten()
}

pub fn count(view: &Value, status: &str) -> usize {
    members(view).filter(|m| m["status"] == status).count()
}

/// Silos over one table.
pub struct Cluster {
    pub place: Place,
    pub preset: &'static str,
    pub silos: Vec<Process>,
}

impl Cluster {
    /// Starts this many silos at once.
    pub fn start(silos: usize, preset: &'static str) -> Self {
        Self::start_at(Place::new(), silos, preset)
    }

    /// The same over a table that exists already, or will exist later.
    pub fn start_at(place: Place, silos: usize, preset: &'static str) -> Self {
        let silos = (0..silos)
            .map(|_| Process::start(&place, port(), preset, &[]))
            .collect();
        Self {
            place,
            preset,
            silos,
        }
    }

    /// The same, and waits until every silo sees all others Active.
    #[track_caller]
    pub fn started(silos: usize, preset: &'static str) -> Self {
        let cluster = Self::start(silos, preset);
        cluster.all_active(Duration::from_secs(40));
        cluster
    }

    #[track_caller]
    pub fn all_active(&self, most: Duration) {
        let until = Instant::now() + most;
        for silo in &self.silos {
            silo.sees_active(
                self.silos.len(),
                until.saturating_duration_since(Instant::now()),
            );
        }
    }

    #[track_caller]
    pub fn address(&self, index: usize) -> String {
        self.silos[index].address(Duration::from_secs(1))
    }

    /// Every process runs, and sees all silos Active and none Dead.
    #[track_caller]
    pub fn is_whole(&mut self) {
        let silos = self.silos.len();
        for silo in &mut self.silos {
            assert!(
                silo.is_running(),
                "127.0.0.1:{}: {:#?}",
                silo.port,
                silo.lines().last()
            );
            silo.sees_active(silos, Duration::from_secs(30));
            silo.sees_nobody_dead();
        }
    }

    /// Waits until every silo has written a heartbeat into the table since this was called.
    #[track_caller]
    pub fn heartbeats_go_on(&self, most: Duration) {
        let beats = || -> BTreeMap<String, u64> {
            let status = self.place.run(&["status", "--json"]).expect(0).json();
            let silos = status["members"].as_array().unwrap().iter();
            silos
                .map(|silo| {
                    (
                        silo["silo"].as_str().unwrap().to_owned(),
                        silo["heartbeat"]["counter"].as_u64().unwrap_or(0),
                    )
                })
                .collect()
        };
        let (until, before) = (Instant::now() + most, beats());
        assert_eq!(before.len(), self.silos.len(), "{before:?}");
        loop {
            let now = beats();
            if before.iter().all(|(silo, counter)| now[silo] > *counter) {
                return;
            }
            assert!(
                Instant::now() < until,
                "heartbeats stand still: {before:?}, and then {now:?}"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Adds one silo to this cluster; waits until all see each other Active.
    #[track_caller]
    pub fn join(&mut self, most: Duration) {
        self.silos
            .push(Process::start(&self.place, port(), self.preset, &[]));
        self.all_active(most);
    }

    pub fn kill_all(&mut self) -> Vec<u16> {
        for silo in &self.silos {
            silo.signal(Signal::KILL);
        }
        self.silos.drain(..).map(|silo| silo.port).collect()
    }

    /// Waits until all running silos publish one view: the same version and digest.
    #[track_caller]
    pub fn agree(&self, most: Duration) {
        let until = Instant::now() + most;
        loop {
            let newest: BTreeSet<(u64, String)> = self
                .silos
                .iter()
                .filter_map(|silo| {
                    silo.lines()
                        .into_iter()
                        .rfind(|l| l.event["event"] == "view")
                })
                .map(|l| {
                    (
                        l.event["version"].as_u64().unwrap(),
                        l.event["digest"].as_str().unwrap().to_owned(),
                    )
                })
                .collect();
            if newest.len() == 1 {
                return;
            }
            assert!(Instant::now() < until, "{newest:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

pub fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}
