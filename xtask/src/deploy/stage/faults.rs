//! The faults, each with the alerts that it raises. None of those fires before.

use std::io::Write as _;
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use super::super::queries::Alert;
use super::{PATIENCE, SILOS, Stage, silos};
use crate::Failure;

/// MembershipTableUnreachable takes 90 s by itself.
const ALERTS_AFTER: Duration = Duration::from_secs(240);

/// Fires while Prometheus has nobody to scrape.
pub(super) const BEFORE_THE_START: &str = "MembershipNothingScraped";

/// What one machine cannot stage.
pub(super) const NOT_STAGED: &[(&str, &str)] = &[
    (
        "MembershipCommitConflicts",
        "it takes silos that commit against each other for minutes; a join is over before its first scrape",
    ),
    (
        "MembershipViewWithdrawn",
        "it takes a silo that lies, or a store that loses a commit between two reads",
    ),
    (
        "MembershipVotesWithoutDeath",
        "it takes a silo that returns between a vote and the next one",
    ),
];

type Act = fn(&mut Stage) -> Result<(), Failure>;

/// So many faults come before the queries.
pub(super) const FOR_DATA: usize = 2;

pub(super) struct Fault {
    pub(super) what: &'static str,
    pub(super) alerts: &'static [&'static str],
    stage: Act,
    /// What puts it right, where the alert then ends at once.
    repair: Option<Act>,
}

/// The first [`FOR_DATA`] make errors and commits, so that each query has data. In an order in which none raises the alerts of a later one.
pub(super) const ALL: &[Fault] = &[
    Fault {
        what: "another process holds the table's lock for 15 s",
        alerts: &["MembershipTableFails", "MembershipTableSlow"],
        stage: lock_table,
        repair: None,
    },
    Fault {
        what: "a silo is killed (SIGKILL)",
        alerts: &["MembershipSiloDeclaredDead"],
        stage: kill_one,
        repair: None,
    },
    Fault {
        what: "somebody writes garbage to a silo's port",
        alerts: &["MembershipStrangersRefused"],
        stage: knock,
        repair: None,
    },
    Fault {
        what: "a sixth silo runs that Prometheus does not know",
        alerts: &["MembershipSiloNotScraped"],
        stage: unknown_silo,
        repair: Some(end_last),
    },
    Fault {
        what: "a silo starts that one of the others cannot dial",
        alerts: &["MembershipJoinHangs"],
        stage: behind_a_door,
        repair: Some(end_last),
    },
    Fault {
        what: "one silo of six is cut off from another one",
        alerts: &["MembershipPartialPartition"],
        stage: partition,
        repair: Some(end_last),
    },
    Fault {
        what: "a process is stopped and continued in turns",
        alerts: &["MembershipSiloStarved"],
        stage: starve,
        repair: None,
    },
    Fault {
        what: "one silo is given another secret",
        alerts: &["MembershipMismatchedMembers"],
        stage: other_secret,
        repair: None,
    },
    Fault {
        what: "a silo dies and starts again, five times",
        alerts: &["MembershipManyDeaths"],
        stage: die_again,
        repair: None,
    },
    Fault {
        what: "the table is moved away under one silo, and then changes",
        alerts: &[
            "MembershipTableReplaced",
            "MembershipViewsDiffer",
            "MembershipTableUnreachable",
        ],
        stage: move_table,
        repair: None,
    },
];

/// Every alert is staged, or says why it is not.
pub(super) fn cover(alerts: &[Alert]) -> Result<(), Failure> {
    let mut named: Vec<&str> = ALL.iter().flat_map(|fault| fault.alerts).copied().collect();
    named.extend(NOT_STAGED.iter().map(|(name, _)| *name));
    named.push(BEFORE_THE_START);
    for alert in alerts {
        if named.iter().filter(|name| **name == alert.name).count() != 1 {
            return Err(Failure::new(format!(
                "{} must have one fault in xtask/src/deploy/stage/faults.rs, or a reason for none",
                alert.name
            )));
        }
    }
    match named.len() == alerts.len() {
        true => Ok(()),
        false => Err(Failure::new("a fault names an alert that does not exist")),
    }
}

impl Fault {
    pub(super) fn run(&self, stage: &mut Stage) -> Result<(), Failure> {
        for alert in self.alerts {
            stage.prometheus.silent(alert)?;
        }
        (self.stage)(stage)?;
        for alert in self.alerts {
            stage.prometheus.fires(alert, ALERTS_AFTER)?;
        }
        if let Some(repair) = self.repair {
            repair(stage)?;
            for alert in self.alerts {
                stage.prometheus.ends(alert, PATIENCE)?;
            }
        }
        Ok(())
    }
}

/// Reads succeed meanwhile; heartbeats and commits wait, and then fail.
fn lock_table(stage: &mut Stage) -> Result<(), Failure> {
    let script = "import sqlite3, sys, time\n\
                  table = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=20)\n\
                  table.execute('BEGIN IMMEDIATE')\n\
                  time.sleep(15)\n\
                  table.execute('ROLLBACK')";
    let mut python = Command::new("python3");
    python
        .args(["-c", script])
        .arg(silos::table_file(&stage.folder));
    crate::output(&mut python).map(drop)
}

fn knock(stage: &mut Stage) -> Result<(), Failure> {
    let mut stream = TcpStream::connect(("127.0.0.1", stage.silos[0].port()))?;
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n")?;
    Ok(())
}

fn unknown_silo(stage: &mut Stage) -> Result<(), Failure> {
    let silo = stage.silo(SILOS + 1, stage.spare[0]).start()?;
    stage.silos.push(silo);
    Ok(())
}

/// If a majority could not, the silo would be voted out.
fn behind_a_door(stage: &mut Stage) -> Result<(), Failure> {
    let other = stage.silos[0].process()?;
    stage.behind_door(SILOS + 2, Some(other))
}

fn partition(stage: &mut Stage) -> Result<(), Failure> {
    let other = stage.silos[0].process()?;
    stage.behind_door(SILOS + 3, None)?;
    let all = format!(
        "min(membership_members{{status=\"Active\"}}) == {}",
        SILOS + 1
    );
    stage
        .prometheus
        .until("six silos are Active", &all, PATIENCE)?;
    if let Some(door) = &stage.door {
        door.shut_out(other);
    }
    Ok(())
}

/// Ends the silo that a fault has added. A silo that joins ends with an error.
fn end_last(stage: &mut Stage) -> Result<(), Failure> {
    match stage.silos.pop() {
        Some(mut silo) => {
            let _ = silo.leave();
            stage.door = None;
            Ok(())
        }
        None => Err(Failure::new("there is no silo to end")),
    }
}

/// A lag above 1 s is a reason to mistrust oneself, and the failure window of the preset `local` is
/// shorter: it is lengthened meanwhile, so that nobody dies.
fn starve(stage: &mut Stage) -> Result<(), Failure> {
    stage.membership(&["settings", "set", "failure_window=8s"])?;
    let learnt = "min(changes(membership_view_version[30s])) > 0";
    stage
        .prometheus
        .until("all have read the setting", learnt, PATIENCE)?;
    let until = Instant::now() + PATIENCE;
    while stage.prometheus.silent("MembershipSiloStarved").is_ok() && Instant::now() < until {
        stage.silos[0].stutter(Duration::from_millis(1_400), Duration::from_millis(400))?;
    }
    stage
        .prometheus
        .fires("MembershipSiloStarved", Duration::ZERO)?;
    stage.membership(&["settings", "set", "failure_window=900ms"])
}

/// Silos look at the file every 30 s. The old secret is put back, and silos that match again connect.
fn other_secret(stage: &mut Stage) -> Result<(), Failure> {
    let file = stage.silos[SILOS - 2].secret();
    let old = std::fs::read(&file)?;
    std::fs::write(&file, "another secret of the cluster: 77d0c1a54e\n")?;
    let fires = stage
        .prometheus
        .fires("MembershipMismatchedMembers", PATIENCE);
    std::fs::write(&file, old)?;
    fires
}

fn kill_one(stage: &mut Stage) -> Result<(), Failure> {
    stage.silos[1].kill()?;
    stage
        .prometheus
        .fires("MembershipSiloDeclaredDead", PATIENCE)?;
    stage.silos[1].restart()?;
    stage.all_active()
}

fn die_again(stage: &mut Stage) -> Result<(), Failure> {
    for _ in 0..5 {
        stage.silos[1].restart()?;
        let active = format!("min(membership_members{{status=\"Active\"}}) == {SILOS}");
        stage
            .prometheus
            .until("the silo is back", &active, PATIENCE)?;
        stage.silos[1].kill()?;
    }
    stage.silos[1].restart()?;
    stage.all_active()
}

/// The last silo reaches the table by a link of its own.
fn move_table(stage: &mut Stage) -> Result<(), Failure> {
    std::fs::remove_file(silos::link(&stage.folder))?;
    stage
        .prometheus
        .fires("MembershipTableReplaced", PATIENCE)?;
    stage.membership(&["settings", "set", "death_vote_expiration=3m"])
}
