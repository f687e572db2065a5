//! The first program of the README, as real processes.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct Program {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Program {
    fn start(folder: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_first-program"))
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Reads until a line contains this.
    async fn until(&mut self, wanted: &str) -> String {
        let read = async {
            loop {
                let line = self.lines.next_line().await.unwrap().expect(wanted);
                if line.contains(wanted) {
                    return line;
                }
            }
        };
        timeout(PATIENCE, read).await.expect(wanted)
    }

    async fn interrupt(&mut self) {
        let id = i32::try_from(self.child.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), Signal::INT).unwrap();
        assert_eq!(self.until("stopped: ").await, "stopped: left");
        let status = timeout(PATIENCE, self.child.wait()).await.unwrap().unwrap();
        assert!(status.success(), "{status}");
    }
}

#[test]
fn the_readme_shows_this_program() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("../../README.md")).unwrap();
    let (_, rest) = readme.split_once("```rust,no_run\n").unwrap();
    let (shown, _) = rest.split_once("```").unwrap();
    let run = fs::read_to_string(root.join("src/main.rs")).unwrap();
    let (_, run) = run.split_once("\n\n").unwrap();
    assert_eq!(shown, run, "they differ: change both");
}

#[tokio::test]
async fn it_shows_every_view_and_leaves_on_ctrl_c() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = Program::start(folder.path());
    first
        .until(" 1 active, customer 42 belongs to 127.0.0.1:")
        .await;
    let mut second = Program::start(folder.path());
    let line = second.until(" 2 active").await;
    first.until(&line).await;
    second.interrupt().await;
    first.until(" 1 active").await;
    first.interrupt().await;
}

/// A reader of its first line may be faster than its next step.
#[tokio::test]
async fn ctrl_c_at_its_first_line_is_a_leave() {
    for _ in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let mut program = Program::start(folder.path());
        program.until(" 1 active").await;
        program.interrupt().await;
    }
}

#[tokio::test]
async fn an_error_that_ends_it_is_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("membership.db"),
        "no database ".repeat(500),
    )
    .unwrap();
    let ran = Command::new(env!("CARGO_BIN_EXE_first-program"))
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output();
    let ran = timeout(PATIENCE, ran).await.unwrap().unwrap();
    assert!(!ran.status.success());
    let text = String::from_utf8(ran.stderr).unwrap();
    assert!(text.starts_with("Error: sqlite "), "{text}");
    assert!(
        !text.contains(['{', '"']) && text.lines().count() == 1,
        "{text}"
    );
}
