//! Silos as real processes with the preset `local`: killed, stopped, asked to leave, started again,
//! at each other's address.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "helpers of tests"
)]

mod support;

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use support::silos::{Cluster, Process, count, loopback, port};
use support::{Place, secs};

/// Kills the last `dead` of five silos. Every survivor publishes in time that they were voted out,
/// and all survivors agree.
fn killed_of_five(dead: usize) {
    let mut cluster = Cluster::started(5, "local");
    let names: Vec<String> = (5 - dead..5).map(|i| cluster.address(i)).collect();
    let killed = Instant::now();
    for silo in &cluster.silos[5 - dead..] {
        silo.signal(Signal::KILL);
    }
    cluster.silos.truncate(5 - dead);
    for silo in &cluster.silos {
        for name in &names {
            let seen = silo.sees_dead(name, "voted", secs(20));
            assert!(seen - killed <= secs(2), "seen after {:?}", seen - killed);
        }
    }
    cluster.agree(secs(5));
}

#[test]
fn a_killed_silo_is_voted_out_within_two_seconds() {
    killed_of_five(1);
}

#[test]
fn two_killed_at_once_are_voted_out_within_two_seconds() {
    killed_of_five(2);
}

#[test]
fn a_silo_that_was_stopped_for_half_a_minute_learns_of_its_death_and_publishes_nothing() {
    let mut cluster = Cluster::started(5, "local");
    let name = cluster.address(4);
    let mut stopped = cluster.silos.pop().unwrap();
    stopped.signal(Signal::STOP);
    let since = Instant::now();
    for silo in &cluster.silos {
        silo.sees_dead(&name, "voted", secs(20));
    }
    std::thread::sleep(secs(30).saturating_sub(since.elapsed()));
    let before = stopped.lines().len();
    stopped.signal(Signal::CONT);
    let (code, err) = stopped.ends(secs(5));
    assert_eq!(code, Some(3), "{err}");
    assert!(err.contains("membership why"), "{err}");
    let after: Vec<_> = stopped.lines().split_off(before);
    assert!(
        after.iter().all(|l| l.event["event"] != "view"),
        "{after:#?}"
    );
    let told = after
        .iter()
        .find(|l| l.event["event"] == "terminated")
        .unwrap();
    assert_eq!(told.event["cause"], "voted");
    assert!(
        !told.event["votes"].as_array().unwrap().is_empty(),
        "{}",
        told.event
    );
    cluster.agree(secs(5));
    let why = cluster.place.run(&["why", &name]).expect(0).out;
    assert!(
        why.contains("is Dead, voted")
            && why.contains("missed probe")
            && why.contains("roll call  4 silos asked: "),
        "{why}"
    );
}

#[test]
fn a_silo_that_is_asked_to_leave_is_seen_as_left() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut cluster = Cluster::started(3, "local");
        let name = cluster.address(2);
        let mut leaving = cluster.silos.pop().unwrap();
        let asked = Instant::now();
        leaving.signal(signal);
        for silo in &cluster.silos {
            let seen = silo.sees_dead(&name, "left", secs(10));
            assert!(seen - asked <= secs(2), "seen after {:?}", seen - asked);
        }
        let (code, err) = leaving.ends(secs(5));
        assert_eq!((code, err.as_str()), (Some(0), ""));
        assert_eq!(leaving.lines().last().unwrap().event["cause"], "left");
        cluster.agree(secs(5));
    }
}

#[test]
fn five_killed_and_five_started_on_the_same_ports() {
    let mut cluster = Cluster::started(5, "local");
    let ports = cluster.kill_all();
    cluster.silos = ports
        .into_iter()
        .map(|port| Process::start(&cluster.place, port, "local", &[]))
        .collect();
    cluster.all_active(secs(15));
    cluster.agree(secs(5));
}

#[test]
fn five_killed_and_one_started_on_a_new_port() {
    let mut cluster = Cluster::started(5, "local");
    cluster.kill_all();
    let started = Process::start(&cluster.place, port(), "local", &[]);
    started.address(secs(15));
    started.sees_active(1, secs(30));
}

#[test]
fn one_of_two_is_killed() {
    let mut cluster = Cluster::started(2, "local");
    let name = cluster.address(1);
    cluster.silos.pop().unwrap().signal(Signal::KILL);
    cluster.silos[0].sees_dead(&name, "voted", secs(15));
}

#[test]
fn a_second_process_at_a_used_address_kills_no_silo() {
    let mut cluster = Cluster::started(3, "local");
    let taken = cluster.silos[1].port;
    let mut same = Process::start(&cluster.place, taken, "local", &[]);
    let (code, err) = same.ends(secs(20));
    assert_eq!(code, Some(4), "{err}");
    let mut advertised = Process::start(
        &cluster.place,
        port(),
        "local",
        &["--advertise", &loopback(taken).to_string()],
    );
    let (code, err) = advertised.ends(secs(20));
    assert_eq!(code, Some(4), "{err}");
    assert!(err.contains("leads to another silo"), "{err}");
    cluster.is_whole();
}

#[test]
fn an_advertised_address_without_a_listener() {
    let place = Place::new();
    let mut silo = Process::start(
        &place,
        port(),
        "local",
        &["--advertise", &loopback(port()).to_string()],
    );
    let (code, err) = silo.ends(secs(40));
    assert_eq!(code, Some(4), "{err}");
    assert!(err.contains("--advertise"), "{err}");
}

#[test]
fn garbage_and_oversized_frames_kill_no_silo() {
    let mut cluster = Cluster::started(2, "local");
    for silo in &cluster.silos {
        for garbage in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            &[0xff; 64][..],
            &[0; 4096][..],
            &[0x7f, 0xff, 0xff, 0xff, 1, 2, 3][..],
        ] {
            let mut stream = TcpStream::connect(loopback(silo.port)).unwrap();
            let _ = stream.write_all(garbage);
        }
    }
    let name = cluster.address(1);
    std::thread::sleep(secs(3));
    cluster.is_whole();
    assert_eq!(cluster.address(1), name);
}

#[test]
fn a_deleted_and_recreated_table_is_reported_and_kills_no_silo() {
    let mut cluster = Cluster::started(3, "local");
    for file in std::fs::read_dir(cluster.place.file().parent().unwrap()).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    let table_event = |silo: &Process, what: &str| {
        silo.wait(what, secs(15), |lines| {
            lines
                .iter()
                .find(|l| {
                    l.event["event"] == "table" && (what == "any" || l.event["state"] == what)
                })
                .map(|l| l.event.clone())
        })
    };
    for silo in &cluster.silos {
        table_event(silo, "any");
    }
    drop(cluster.place.initialize());
    for silo in &cluster.silos {
        table_event(silo, "table_replaced");
    }
    std::thread::sleep(secs(5));
    cluster.is_whole();
}

#[test]
fn a_reader_that_goes_away_does_not_stop_a_silo() {
    let place = Place::new();
    let port = port();
    let listen = format!("127.0.0.1:{port}");
    let mut child = place
        .command(&["silo", "--json", "--listen", &listen, "--preset", "local"])
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let until = Instant::now() + secs(20);
    while place.run(&["status", "--json"]).out.is_empty()
        || count(&place.run(&["status", "--json"]).json(), "Active") == 0
    {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(child.try_wait().unwrap().is_none());
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn an_evicted_silo_reports_the_eviction() {
    let mut cluster = Cluster::started(3, "local");
    let name = cluster.address(2);
    let ran = cluster
        .place
        .run(&["evict", &name, "--reason", "disk is dying", "--yes"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.err.contains("it is alive"), "{ran:?}");
    let mut gone = cluster.silos.pop().unwrap();
    let (code, err) = gone.ends(secs(10));
    assert_eq!(code, Some(3), "{err}");
    assert_eq!(gone.lines().last().unwrap().event["cause"], "evicted");
    for silo in &cluster.silos {
        silo.sees_dead(&name, "evicted", secs(10));
    }
    assert!(
        cluster
            .place
            .run(&["why", &name])
            .expect(0)
            .out
            .contains("disk is dying")
    );
}

#[test]
fn a_silo_that_cannot_start_says_why() {
    let place = Place::new();
    let ask = |args: &[&str], code: i32| {
        place
            .run(&[&["silo", "--listen", "127.0.0.1:0"], args].concat())
            .expect(code)
            .err
    };
    std::fs::write(place.file().with_extension("toml"), "probe_period = \"1h\"").unwrap();
    let file = place.file().with_extension("toml");
    assert!(ask(&["--config", file.to_str().unwrap()], 2).contains("100ms to 60s"));
    assert!(ask(&["--metadata", "novalue"], 2).contains("key=value"));
    assert!(ask(&["--advertise", "0.0.0.0:1"], 2).contains("--advertise"));
    assert!(
        place
            .run(&["silo", "--listen", "0.0.0.0:0"])
            .expect(2)
            .err
            .contains("--advertise")
    );
    assert!(ask(&["--table", "gopher:x"], 2).contains("does not know the scheme"));
    std::fs::write(place.file(), vec![b'x'; 8192]).unwrap();
    ask(&[], 6);
}
