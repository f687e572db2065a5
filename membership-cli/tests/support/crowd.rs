//! Many silos of which one writes the changes of all, started at one moment.

use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::silos::Process;
use super::{Place, secs};

/// What silos that write for each other have in a configuration file.
const CONFIG: &str = "preset = \"lan\"\nscribe = true\n";
/// Until all are Active, on two cores.
const MOST: Duration = Duration::from_secs(60);

/// The options of silos that write for each other: they name a configuration file beside the table.
pub fn options(place: &Place) -> [String; 2] {
    let file = place.file().with_file_name("silo.toml");
    std::fs::write(&file, CONFIG).unwrap();
    ["--config".to_owned(), file.display().to_string()]
}

/// How many silos start at once: a hundred, or as many as this variable says.
const SILOS: &str = "MEMBERSHIP_CROWD";

fn silos() -> usize {
    std::env::var(SILOS).map_or(100, |text| text.parse().unwrap())
}

/// Starts many silos at once, and kills the one that wrote last when half of them have a row.
pub fn starts_at_once_and_its_scribe_is_killed(place: &Place) {
    let silos = silos();
    let options = options(place);
    // All at one moment, so that they are different ones.
    let free: Vec<TcpListener> = (0..silos)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let ports = free.iter().map(|l| l.local_addr().unwrap().port());
    let ports: Vec<u16> = ports.collect();
    drop(free);
    let began = Instant::now();
    let mut all: Vec<Process> = ports
        .into_iter()
        .map(|port| {
            let listen = format!("127.0.0.1:{port}");
            let mut args = vec!["silo", "--exit-with-stdin", "--listen", &listen];
            args.extend(options.iter().map(String::as_str));
            Process::spawn(place.command(&args), port)
        })
        .collect();
    let mut killed = None;
    let version = loop {
        let status = place.run(&["status", "--json"]);
        // Nothing is there until the first of them has made the table.
        let status = (status.code == Some(0)).then(|| status.json());
        let members = status.as_ref().and_then(|s| s["members"].as_array());
        let count = |status: &str| {
            let all = members.into_iter().flatten();
            all.filter(|m| m["status"] == status).count()
        };
        let (active, joining) = (count("Active"), count("Joining"));
        if let Some(status) = status.as_ref() {
            if killed.is_none() && active + joining >= silos / 2 {
                let recent = status["recent"].as_array().unwrap();
                let scribe = recent.last().unwrap()["committer"].as_str().unwrap();
                let is_it = |s: &Process| scribe.starts_with(&format!("127.0.0.1:{}@", s.port));
                let at = all.iter().position(is_it).unwrap();
                all.remove(at).signal(Signal::KILL);
                killed = Some((active, joining, began.elapsed()));
            } else if killed.is_some() && active == silos - 1 && joining == 0 {
                break status["version"].clone();
            }
        }
        let took = began.elapsed();
        assert!(took < MOST, "{active} Active, {joining} Joining");
        thread::sleep(secs(1));
    };
    let took = began.elapsed();
    if let Some((active, joining, at)) = killed {
        let at = at.as_secs_f64();
        eprintln!("scribe killed after {at:.1} s: {active} Active, {joining} Joining");
    }
    eprintln!(
        "all Active after {:.1} s, {version} commits",
        took.as_secs_f64()
    );
    assert!(took < MOST, "too late");
    for silo in &mut all {
        assert!(silo.is_running(), "{:?}", silo.lines().last());
    }
}
