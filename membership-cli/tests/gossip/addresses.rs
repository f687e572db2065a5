//! Processes with a wrong `--advertise`: the address of a member, and one where nobody is.

use std::net::SocketAddr;

use crate::support::silos::{Process, port};
use crate::support::{PROGRAM, secs};
use crate::{QUICK, Shared, agreed, agrees_on, all_agree};

/// A member that advertises another address than that at which it listens.
fn start_wrong(shared: &Shared, advertises: SocketAddr, seeds: &[SocketAddr]) -> Process {
    let at = SocketAddr::from(([127, 0, 0, 1], port()));
    let mut command = std::process::Command::new(PROGRAM);
    command.args(["gossip", "--json", "--exit-with-stdin"]);
    command.args(["--listen", &at.to_string()]);
    command.args(["--advertise", &advertises.to_string()]);
    for seed in seeds {
        command.args(["--seed", &seed.to_string()]);
    }
    command.args(["--secret-file", shared.secret().to_str().unwrap()]);
    let config = shared.folder.path().join("members.toml");
    command.args(["--config", config.to_str().unwrap()]);
    command.env_remove("MEMBERSHIP_CLUSTER");
    Process::spawn(command, at.port())
}

#[test]
fn a_wrong_address_ends_the_process_that_advertises_it_and_no_member() {
    let shared = Shared::here(4, QUICK);
    let members = shared.start_all();
    all_agree(&members, 4, secs(60));
    let before: Vec<_> = members.iter().map(|m| agreed(m, 4)).collect();
    let points = &shared.points;
    // The address of a contact point, with all contact points or that one only; that of another
    // member, with another contact point.
    for (advertises, seeds) in [
        (points[1], &points[..3]),
        (points[1], &points[1..2]),
        (points[3], &points[..1]),
    ] {
        let mut wrong = start_wrong(&shared, advertises, seeds);
        let (code, err) = wrong.ends(secs(60));
        assert_eq!(code, Some(4), "{advertises}, {seeds:?}: {err}");
        assert!(err.contains("leads to another process"), "{err}");
        let mut lines = wrong.lines().into_iter();
        assert!(
            lines.all(|line| line.event["event"] != "founded"),
            "{advertises}, {seeds:?}"
        );
    }
    // Nothing has changed for the others.
    let after: Vec<_> = members.iter().map(|m| agreed(m, 4)).collect();
    assert_eq!(before, after);
    for member in &members {
        assert!(
            member
                .lines()
                .iter()
                .all(|l| l.event["event"] != "terminated")
        );
    }
}

#[test]
fn who_advertises_an_address_where_nobody_is_is_told_so_and_blocks_nobody() {
    let shared = Shared::here(3, QUICK);
    let members = shared.start_all();
    all_agree(&members, 3, secs(60));
    let nobody = SocketAddr::from(([127, 0, 0, 1], port()));
    let wrong = start_wrong(&shared, nobody, &shared.points);
    wrong.wait("nobody answers", secs(60), |lines| {
        let reasons = lines.iter().filter_map(|l| l.event["reason"].as_str());
        let told = reasons.filter(|reason| reason.contains("nobody answers"));
        (told.count() >= 2).then_some(())
    });
    for member in &members {
        let lines = member.lines();
        let first = lines.iter().position(|l| agrees_on(&l.event, 3)).unwrap();
        let mut views = lines[first..].iter().filter(|l| l.event["event"] == "view");
        assert!(views.all(|l| agrees_on(&l.event, 3)), "{lines:#?}");
    }
}
