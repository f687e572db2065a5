//! What members tell of decisions, of those that end, and of what they wait for.

use super::*;

/// The first event of this kind.
#[track_caller]
fn told(process: &Process, event: &str, most: Duration) -> Value {
    process.wait(event, most, |lines| {
        let line = lines.iter().find(|line| line.event["event"] == event)?;
        Some(line.event.clone())
    })
}

/// The member's own address.
fn address(process: &Process) -> String {
    let event = told(process, "joining", secs(10));
    event["silo"].as_str().unwrap().to_owned()
}

#[cfg(feature = "sqlite")]
#[test]
fn a_joiner_with_another_arbiter_is_refused_by_name() {
    let config = format!("{QUICK}strategy = \"lease-majority\"\n");
    let shared = Shared::here(2, &config).with_arbiter();
    let one = shared.start(shared.points[0]);
    let mut other = {
        let url = format!("sqlite://{}", shared.folder.path().join("b.db").display());
        let mut args = shared.member(shared.points[1]);
        *args.last_mut().unwrap() = url;
        let mut command = Command::new(PROGRAM);
        command.args(args).env_remove("MEMBERSHIP_CLUSTER");
        Process::spawn(command, shared.points[1].port())
    };
    let (code, err) = other.ends(secs(60));
    assert_eq!(code, Some(4), "{err}");
    assert!(err.contains("downing.arbiter"), "{err}");
    drop(one);
}

#[test]
fn a_refusal_shows_both_values_as_they_are_written() {
    let config = format!("founding = \"first-seed\"\n{QUICK}");
    let shared = Shared::here(2, &config);
    let one = shared.start(shared.points[0]);
    told(&one, "active", secs(30));
    for (theirs, parts) in [
        (
            "stable_after = \"7s\"\n",
            ["downing.stable_after", "4s", "7s"],
        ),
        (
            "stable_after = \"4s\"\nstrategy = \"down-all\"\n",
            ["downing.strategy", "keep-majority", "down-all"],
        ),
    ] {
        let config = config.replace("stable_after = \"4s\"\n", theirs);
        let other = Shared::new(shared.points.clone(), &config);
        std::fs::copy(shared.secret(), other.secret()).unwrap();
        let mut process = other.start(shared.points[1]);
        let (code, err) = process.ends(secs(30));
        assert_eq!(code, Some(4), "{err}");
        for part in parts {
            assert!(err.contains(part), "{part}: {err}");
        }
        assert!(!err.contains('{') && !err.contains("KeepMajority"), "{err}");
        let event = told(&process, "not_taken_in", secs(1));
        let reason = event["reason"].as_str().unwrap();
        assert!(reason.contains(parts[2]), "{reason}");
    }
}

#[cfg(feature = "sqlite")]
#[test]
fn a_decision_is_told_with_its_evidence_and_everybody_tells_who_ended() {
    let config = format!("{QUICK}strategy = \"lease-majority\"\n");
    let shared = Shared::here(3, &config).with_arbiter();
    let mut members = shared.start_all();
    all_agree(&members, 3, secs(60));
    let last = address(&members[2]);
    members[2].signal(Signal::KILL);
    members.truncate(2);
    all_agree(&members, 2, secs(60));

    let leader = told(&members[0], "decided", secs(1));
    for (field, value) in [
        ("strategy", "lease-majority".into()),
        ("verdict", "down-unreachable".into()),
        ("down", vec![last.clone()].into()),
        ("reached", 2.into()),
        ("unreached", 1.into()),
        ("indirect", Vec::<String>::new().into()),
    ] {
        let value: Value = value;
        assert_eq!(leader[field], value, "{field}: {leader}");
    }
    assert_eq!(leader["arbiter"]["answer"], "granted", "{leader}");
    for member in &members {
        assert_eq!(told(member, "downed", secs(1))["silo"], last);
        assert_eq!(told(member, "removed", secs(1))["silo"], last);
    }
    for (place, member) in members.iter_mut().enumerate() {
        member.signal(Signal::KILL);
        let (_, err) = member.ends(secs(10));
        assert!(!err.contains("all members are reached again"), "{err}");
        assert!(err.contains("nobody is unreachable any more"), "{err}");
        assert!(err.contains("a member was downed"), "{err}");
        let decided = err.contains("the resolver has decided");
        assert_eq!(decided, place == 0, "{err}");
        assert_eq!(
            err.contains("strategy=\"lease-majority\""),
            decided,
            "{err}"
        );
    }
}

#[test]
fn members_that_are_reached_again_are_told_as_such() {
    let shared = Shared::here(3, QUICK);
    let mut members = shared.start_all();
    all_agree(&members, 3, secs(60));
    members[2].signal(Signal::STOP);
    members[0].wait("somebody is unreachable", secs(20), |lines| {
        let last = lines.iter().rfind(|l| l.event["event"] == "view")?;
        let blocked = last.event["blocked_by"]["unreachable"].as_array()?;
        (!blocked.is_empty()).then_some(())
    });
    members[2].signal(Signal::CONT);
    all_agree(&members, 3, secs(30));
    members[0].signal(Signal::KILL);
    let (_, err) = members[0].ends(secs(10));
    assert!(err.contains("all members are reached again"), "{err}");
}

#[test]
fn a_member_that_is_asked_to_down_another_says_who_asked() {
    let shared = Shared::here(3, QUICK);
    let mut members = shared.start_all();
    all_agree(&members, 3, secs(60));
    let (at, last) = (shared.points[0].to_string(), address(&members[2]));
    shared.ask(&["down", &last, "--at", &at, "--yes"]).expect(0);
    let event = told(&members[0], "down_asked", secs(5));
    assert_eq!(event["silo"], last, "{event}");
    assert_eq!(event["from"], "127.0.0.1", "{event}");
    assert_eq!(members[2].ends(secs(30)).0, Some(3));
    members.truncate(2);
    all_agree(&members, 2, secs(30));
    for (place, member) in members.iter_mut().enumerate() {
        assert_eq!(told(member, "downed", secs(1))["silo"], last);
        member.signal(Signal::KILL);
        let (_, err) = member.ends(secs(10));
        let said: Vec<_> = err.lines().filter(|l| l.contains("operator")).collect();
        assert_eq!(said.len(), usize::from(place == 0), "{err}");
        assert!(said.iter().all(|line| line.contains("from=127.0.0.1")));
    }
}

#[test]
fn a_process_that_waits_says_for_what() {
    let shared = Shared::here(3, QUICK);
    let mut member = shared.start(shared.points[0]);
    let event = told(&member, "waiting", secs(15));
    assert_eq!(event["answered"].as_array().unwrap().len(), 1, "{event}");
    assert_eq!((&event["needed"], &event["of"]), (&2.into(), &3.into()));
    let silent = event["silent"].as_array().unwrap();
    assert_eq!(silent.len(), 2, "{event}");
    for point in silent {
        let reason = point["reason"].as_str().unwrap();
        assert!(reason.contains("refused"), "{event}");
    }
    let at = shared.points[0].to_string();
    let ran = shared.ask(&["status", "--at", &at]).expect(1);
    for part in [
        "is in no cluster",
        "1 of 3 contact points answered, 2 are needed",
        &shared.points[1].to_string(),
        "refused",
    ] {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
    let again = |lines: &[support::silos::Line]| {
        let waiting = lines.iter().filter(|l| l.event["event"] == "waiting");
        (waiting.count() >= 2).then_some(())
    };
    member.wait("waiting, again", secs(10), again);
    member.signal(Signal::TERM);
    assert_eq!(member.ends(secs(30)).0, Some(0));
}
