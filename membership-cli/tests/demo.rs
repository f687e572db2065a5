//! The demo, which new users run first.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "helpers of tests"
)]

mod support;

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use support::{PROGRAM, secs};

/// The demo with a temporary folder of its own, which shows whether a file was left.
fn demo(args: &[&str], tmp: &std::path::Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .arg("demo")
        .args(args)
        .env("TMPDIR", tmp)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Neither a file nor a process of the demo remains: its processes have the folder in their command
/// line or as their directory.
fn nothing_left(tmp: &std::path::Path) {
    assert_eq!(std::fs::read_dir(tmp).unwrap().count(), 0, "files are left");
    let until = std::time::Instant::now() + secs(5);
    while let Some(left) = process_in(tmp) {
        assert!(std::time::Instant::now() < until, "{left} is left");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

fn process_in(tmp: &std::path::Path) -> Option<String> {
    let processes = std::fs::read_dir("/proc").ok()?;
    processes.flatten().find_map(|p| {
        let folder = std::fs::read_link(p.path().join("cwd")).ok()?;
        folder
            .starts_with(tmp)
            .then(|| p.file_name().to_string_lossy().into_owned())
    })
}

#[test]
fn the_demo_ends_with_one_view() {
    let tmp = tempfile::tempdir().unwrap();
    for args in [&[][..], &["--silos", "4", "--kill", "2"]] {
        let ran: support::Ran = demo(args, tmp.path()).output().unwrap().into();
        let ran = ran.expect(0);
        for part in [
            "killed 127.0.0.1:",
            "Dead, voted",
            "time until every survivor published the death",
            "final version",
            "one view: digest",
        ] {
            assert!(ran.out.contains(part), "{part}: {}", ran.out);
        }
        nothing_left(tmp.path());
    }
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    for (signal, leaves_files) in [
        (Signal::INT, false),
        (Signal::TERM, false),
        (Signal::KILL, true),
    ] {
        let tmp = tempfile::tempdir().unwrap();
        let mut child = demo(&[], tmp.path()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(
            lines.any(|line| line.unwrap().contains("Active")),
            "it started"
        );
        kill_process(Pid::from_child(&child), signal).unwrap();
        let status = child.wait().unwrap();
        let mut err = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut err)
            .unwrap();
        if leaves_files {
            // After SIGKILL nothing can clean up, but the silos find out that their parent has
            // ended.
            let until = std::time::Instant::now() + secs(15);
            while let Some(left) = process_in(tmp.path()) {
                assert!(std::time::Instant::now() < until, "{left} is left");
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
        } else {
            assert_eq!(status.code(), Some(1), "{err}");
            nothing_left(tmp.path());
        }
    }
}

#[test]
fn killing_every_silo_is_refused() {
    let tmp = tempfile::tempdir().unwrap();
    let ran: support::Ran = demo(&["--silos", "3", "--kill", "3"], tmp.path())
        .output()
        .unwrap()
        .into();
    assert!(ran.expect(2).err.contains("leaves nobody"));
}
