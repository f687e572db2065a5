//! Real silos and a dashboard, as processes that end with the test.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_membership-page-tests");

pub struct Process {
    child: Child,
    _stdin: Option<ChildStdin>,
    out: BufReader<std::process::ChildStdout>,
    /// Where it answers HTTP, once it has said so.
    url: Option<String>,
}

impl Process {
    pub fn start(args: &[&str], table: &str) -> Self {
        let mut child = Command::new(PROGRAM)
            .args(args)
            .env("MEMBERSHIP_TABLE", table)
            .env("MEMBERSHIP_CLUSTER", "default")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self {
            _stdin: child.stdin.take(),
            out,
            child,
            url: None,
        }
    }

    /// Reads lines until one has this event.
    pub fn until(&mut self, event: &str) -> Value {
        loop {
            let mut line = String::new();
            let read = self.out.read_line(&mut line).unwrap();
            assert!(read > 0, "it ended before `{event}`");
            let value: Value = serde_json::from_str(&line).unwrap();
            if let Some(address) = value["address"].as_str() {
                self.url = Some(format!("http://{address}"));
            }
            if value["event"] == event {
                return value;
            }
        }
    }

    /// Where it answers HTTP.
    pub fn http(&self) -> String {
        self.url.clone().expect("a process with --http")
    }

    /// As `kill -9`.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub struct Cluster {
    pub url: String,
    pub silos: Vec<(String, Process)>,
    _folder: tempfile::TempDir,
}

impl Cluster {
    /// Silos in three zones, the last with `--http`; all are Active.
    pub fn start(silos: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("membership.db").display());
        let mut started: Vec<Process> = Vec::new();
        for n in 0..silos {
            let (name, zone) = (format!("silo-{n}"), format!("z{}", n % 3));
            let mut args = vec![
                "silo",
                "--json",
                "--listen",
                "127.0.0.1:0",
                "--preset",
                "local",
                "--name",
                &name,
                "--zone",
                &zone,
                "--role",
                "worker",
                "--exit-with-stdin",
            ];
            if n + 1 == silos {
                args.extend(["--http", "127.0.0.1:0"]);
            }
            started.push(Process::start(&args, &url));
        }
        let mut named = Vec::new();
        for mut silo in started {
            let active = silo.until("active");
            named.push((active["silo"].as_str().unwrap().to_owned(), silo));
        }
        Self {
            url,
            silos: named,
            _folder: folder,
        }
    }

    pub fn dashboard(&self, more: &[&str]) -> (String, Process) {
        dashboard(&self.url, more)
    }
}

/// The address of the page without the last slash, and the process.
pub fn dashboard(table: &str, more: &[&str]) -> (String, Process) {
    let mut args = vec!["dashboard", "--json", "--http", "127.0.0.1:0"];
    args.extend(more);
    let mut process = Process::start(&args, table);
    let url = process.until("http")["url"].as_str().unwrap().to_owned();
    (url.trim_end_matches('/').to_owned(), process)
}
