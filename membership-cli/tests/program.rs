//! What surrounds the commands: completion, manual pages, options from the environment.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "this is a test"
)]

mod support;

use std::io::Write;
use std::process::{Command, Stdio};

use support::silos::{Process, port};
use support::{Place, secs};

#[test]
fn shells_complete_the_commands() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = place.run(&["completions", shell]).expect(0).out;
        assert!(
            script.contains("membership") && script.contains("evict"),
            "{shell}"
        );
        let Ok(mut child) = Command::new(shell)
            .args(["-n", "/dev/stdin"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
        else {
            assert_ne!(
                shell, "bash",
                "bash is on every machine that runs the tests"
            );
            continue;
        };
        child
            .stdin
            .take()
            .unwrap()
            .write_all(script.as_bytes())
            .unwrap();
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success(), "{shell}: {done:?}");
    }
    place.run(&["completions", "tcsh"]).expect(2);
}

#[test]
fn there_is_a_manual_page_for_each_command() {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("man1");
    let place = Place::new();
    let written = place
        .run(&["man", "--into", into.to_str().unwrap()])
        .expect(0)
        .out;
    let files: Vec<_> = written.lines().collect();
    assert_eq!(files.len(), std::fs::read_dir(&into).unwrap().count());
    let page = |name: &str| std::fs::read_to_string(into.join(name)).unwrap();
    assert!(page("membership-silo.1").contains("MEMBERSHIP_LISTEN"));
    assert!(page("membership-status.1").contains("filter"));
    assert!(page("membership.1").contains("evict"));
    let one = place.run(&["man"]).expect(0).out;
    assert!(
        one.starts_with(".ie") || one.contains(".TH membership"),
        "{one}"
    );
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let wrong = place.run(&["man", "--into", file.join("x").to_str().unwrap()]);
    assert!(wrong.expect(1).err.contains("cannot write"));
}

#[test]
fn a_silo_takes_its_options_from_the_environment() {
    let place = Place::new();
    let port = port();
    let mut command = place.command(&["silo", "--exit-with-stdin"]);
    command
        .env("MEMBERSHIP_LISTEN", format!("127.0.0.1:{port}"))
        .env("MEMBERSHIP_PRESET", "local")
        .env("MEMBERSHIP_NAME", "from-the-environment")
        .env("MEMBERSHIP_METADATA", "shard=7")
        .env("MEMBERSHIP_JSON", "true");
    let silo = Process::spawn(command, port);
    let address = silo.address(secs(60));
    let status = place.run(&["status", "--json"]).expect(0).json();
    let member = &status["members"][0];
    assert_eq!(member["silo"], address.as_str());
    assert_eq!(member["silo_name"], "from-the-environment");
    assert_eq!(member["metadata"]["shard"], "7");
    let mut wrong = place.command(&["silo"]);
    wrong.env("MEMBERSHIP_LISTEN", "everywhere");
    let wrong = support::Ran::from(wrong.output().unwrap()).expect(2);
    assert!(wrong.err.contains("everywhere"), "{wrong:?}");
}
