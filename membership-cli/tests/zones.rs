//! Three zones of three silos as processes, each zone in a network namespace of its own, and a router
//! between them that drops what the first two zones send each other. Nobody may die: every silo is
//! reached by two thirds. Needs Linux, root and the command `ip`. Takes three minutes.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "helpers of tests"
)]

mod support;

use std::process::Command;

use support::silos::{Process, count};
use support::{Place, secs};

const ZONES: u8 = 3;
const SILOS: u8 = 3;

/// Network namespaces: one for each zone, and one that routes between them.
struct Zones {
    prefix: String,
}

impl Zones {
    fn new() -> Self {
        let zones = Self {
            prefix: format!("zones{}", std::process::id()),
        };
        let hub = zones.name("hub");
        zones.ip(&["netns", "add", &hub]);
        let forward = "echo 1 > /proc/sys/net/ipv4/ip_forward";
        zones.ip(&["netns", "exec", &hub, "sh", "-c", forward]);
        for zone in 0..ZONES {
            let (name, port) = (zones.name(zone), format!("zone{zone}"));
            let gateway = format!("10.77.{zone}.254");
            zones.ip(&["netns", "add", &name]);
            zones.ip(&["-n", &name, "link", "set", "dev", "lo", "up"]);
            zones.ip(&[
                "-n", &name, "link", "add", "up0", "type", "veth", "peer", "name", &port, "netns",
                &hub,
            ]);
            zones.ip(&[
                "-n",
                &hub,
                "addr",
                "add",
                &format!("{gateway}/24"),
                "dev",
                &port,
            ]);
            zones.ip(&["-n", &hub, "link", "set", "dev", &port, "up"]);
            for silo in 1..=SILOS {
                let address = format!("10.77.{zone}.{silo}/24");
                zones.ip(&["-n", &name, "addr", "add", &address, "dev", "up0"]);
            }
            zones.ip(&["-n", &name, "link", "set", "dev", "up0", "up"]);
            zones.ip(&["-n", &name, "route", "add", "default", "via", &gateway]);
        }
        zones
    }

    fn name(&self, of: impl std::fmt::Display) -> String {
        format!("{}-{of}", self.prefix)
    }

    #[track_caller]
    fn ip(&self, args: &[&str]) {
        let ran = Command::new("ip").args(args).output();
        let ran =
            ran.unwrap_or_else(|e| panic!("{e}: this test needs the command `ip` (iproute2)"));
        assert!(
            ran.status.success(),
            "ip {}: {} (this test needs root)",
            args.join(" "),
            String::from_utf8_lossy(&ran.stderr)
        );
    }

    /// Drops everything between two zones, in both directions, without a word to either.
    fn cut(&self, what: &str, a: u8, b: u8) {
        for (from, to) in [(a, b), (b, a)] {
            let (from, to) = (format!("10.77.{from}.0/24"), format!("10.77.{to}.0/24"));
            let hub = self.name("hub");
            self.ip(&[
                "-n",
                &hub,
                "rule",
                what,
                "from",
                &from,
                "to",
                &to,
                "blackhole",
            ]);
        }
    }

    fn start(&self, place: &Place, zone: u8, silo: u8) -> Process {
        let (name, listen) = (self.name(zone), format!("10.77.{zone}.{silo}:7100"));
        let program = place.command(&[
            "silo",
            "--json",
            "--exit-with-stdin",
            "--listen",
            &listen,
            "--preset",
            "lan",
        ]);
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &name])
            .arg(program.get_program());
        command.args(program.get_args());
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        Process::spawn(command, 7100)
    }
}

impl Drop for Zones {
    fn drop(&mut self) {
        let names = (0..ZONES).map(|zone| self.name(zone));
        for name in names.chain([self.name("hub")]) {
            let _ = Command::new("ip").args(["netns", "del", &name]).output();
        }
    }
}

#[test]
#[ignore = "needs root, and three minutes: .ci/run nightly runs it"]
fn two_of_three_zones_are_cut_from_each_other_and_nobody_dies() {
    let zones = Zones::new();
    let place = Place::new();
    let all = usize::from(ZONES * SILOS);
    let mut silos: Vec<Process> = (0..ZONES)
        .flat_map(|zone| (1..=SILOS).map(move |silo| (zone, silo)))
        .map(|(zone, silo)| zones.start(&place, zone, silo))
        .collect();
    for silo in &silos {
        silo.sees_active(all, secs(60));
    }
    zones.cut("add", 0, 1);
    std::thread::sleep(secs(120));
    let whole = |silos: &mut [Process]| {
        for silo in silos {
            assert!(silo.is_running(), "{:#?}", silo.lines().last());
            silo.sees_active(all, secs(5));
            silo.sees_nobody_dead();
        }
    };
    whole(&mut silos);
    zones.cut("del", 0, 1);
    std::thread::sleep(secs(20));
    whole(&mut silos);
    let lines = silos[0].lines();
    let last = lines.iter().rfind(|l| l.event["event"] == "view").unwrap();
    assert_eq!(count(&last.event, "Active"), all);
}
