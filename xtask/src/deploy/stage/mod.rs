//! `cargo xtask deploy prove`: five real silos over SQLite with the preset `local`, a real
//! Prometheus that scrapes them every two seconds, and faults. Everything is on loopback, has a folder of
//! its own, and ends with this program.

mod door;
mod faults;
mod pods;
mod prometheus;
mod silos;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::queries;
use super::tools::Tools;
use crate::{Failure, cargo, output, say};
use door::Door;
use prometheus::Prometheus;
use silos::{Silo, ports};

/// As many as a table of five needs for a majority without two.
const SILOS: usize = 5;
/// How long anything may take that is not an alert: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(90);

/// What a fault works on.
struct Stage {
    folder: PathBuf,
    program: PathBuf,
    /// Dropped first: Prometheus takes the folder with it.
    silos: Vec<Silo>,
    prometheus: Prometheus,
    /// Ports that nobody else takes, for whoever a fault starts.
    spare: Vec<u16>,
    /// Before the silo that was started last.
    door: Option<Door>,
}

pub(super) fn run(root: &Path, program: Option<&Path>, only: Option<&str>) -> Result<(), Failure> {
    let tools = Tools::ready()?;
    let alerts = queries::alerts(&tools, root)?;
    faults::cover(&alerts)?;
    let program = match program {
        Some(program) => program.canonicalize()?,
        None => build(root)?,
    };
    let folder = tempfile::tempdir()?;
    let ports = ports(2 * SILOS + 4)?;
    let (http, rest) = ports.split_at(SILOS);
    let (listen, spare) = rest.split_at(SILOS);
    let mut stage = Stage {
        folder: folder.path().to_owned(),
        program,
        prometheus: Prometheus::start(&tools, root, folder.path(), spare[0], http)?,
        silos: Vec::new(),
        spare: spare[1..].to_vec(),
        door: None,
    };
    say(&format!("Prometheus {} scrapes", tools.version()));

    // The one fault before all others: nobody is there yet.
    let before = faults::BEFORE_THE_START;
    stage.prometheus.fires(before, PATIENCE)?;
    std::fs::write(
        stage.folder.join("secret"),
        "a secret of the staged cluster: 3f9c1e77ab\n",
    )?;
    std::fs::create_dir(stage.folder.join("table"))?;
    std::os::unix::fs::symlink("table", silos::link(&stage.folder))?;
    for (n, (&listen, &http)) in listen.iter().zip(http).enumerate() {
        let silo = stage.silo(n + 1, listen).http(http);
        let silo = match n + 1 == SILOS {
            true => silo.table_by_link(),
            false => silo,
        };
        stage.silos.push(silo.start()?);
    }
    stage.all_active()?;
    stage.prometheus.ends(before, PATIENCE)?;
    say(&format!(
        "{before}: fired before the silos started, and not since"
    ));

    pods::run(&tools, root, &stage)?;
    let mut chosen = Vec::new();
    for (n, fault) in faults::ALL.iter().enumerate() {
        if n < faults::FOR_DATA || only.is_none_or(|only| fault.what.contains(only)) {
            chosen.push(fault);
        }
    }
    for (n, fault) in chosen.into_iter().enumerate() {
        let began = Instant::now();
        fault.run(&mut stage)?;
        let took = began.elapsed().as_secs();
        say(&format!(
            "{}: {} ({took} s)",
            fault.alerts.join(", "),
            fault.what
        ));
        if n + 1 == faults::FOR_DATA {
            every_query(&tools, root, &stage, &alerts)?;
        }
    }
    for (alert, why) in faults::NOT_STAGED {
        say(&format!(
            "{alert}: NOT STAGED, proved by its test in rules_test.yml: {why}"
        ));
    }
    Ok(())
}

/// Each query of the dashboard, what each rule records, and what each alert compares.
fn every_query(
    tools: &Tools,
    root: &Path,
    stage: &Stage,
    alerts: &[queries::Alert],
) -> Result<(), Failure> {
    let panels = queries::dashboard(root)?;
    for query in &panels {
        stage
            .prometheus
            .answers(&format!("the panel '{}'", query.panel), &query.filled())?;
    }
    let records = queries::records(tools, root)?;
    for record in &records {
        stage.prometheus.answers("a recorded series", record)?;
    }
    for alert in alerts {
        stage.prometheus.answers(&alert.name, &alert.value)?;
    }
    say(&format!(
        "{} queries of the dashboard, {} recorded series and {} alerts without their thresholds: all return data",
        panels.len(),
        records.len(),
        alerts.len()
    ));
    Ok(())
}

impl Stage {
    /// A silo that is not started yet.
    fn silo(&self, number: usize, port: u16) -> Silo {
        Silo::new(&self.program, &self.folder, &format!("s{number}"), port)
    }

    /// Starts one more silo behind a door that shuts this process out.
    fn behind_door(&mut self, number: usize, shut_out: Option<u32>) -> Result<(), Failure> {
        let (inside, outside) = (self.spare[1], self.spare[2]);
        let door = Door::open(outside, inside)?;
        if let Some(process) = shut_out {
            door.shut_out(process);
        }
        self.door = Some(door);
        let silo = self.silo(number, inside).advertise(outside);
        self.silos.push(silo.start()?);
        Ok(())
    }

    /// Waits until all silos are scraped and know all others as Active.
    fn all_active(&self) -> Result<(), Failure> {
        let members = "membership_members{status=\"Active\"}";
        self.prometheus.until(
            "five silos are scraped and Active",
            &format!("(min({members}) == {SILOS}) and (max({members}) == {SILOS}) and (count({members}) == {SILOS})"),
            PATIENCE,
        )
    }

    /// `membership …` on the table, to its end.
    fn membership(&self, arguments: &[&str]) -> Result<(), Failure> {
        let table = silos::url(&silos::table_file(&self.folder));
        let mut command = silos::command(&self.program, &table);
        output(command.args(arguments)).map(drop)
    }
}

fn build(root: &Path) -> Result<PathBuf, Failure> {
    let mut build = cargo();
    build.args([
        "build",
        "--locked",
        "-p",
        "membership-cli",
        "--bin",
        "membership",
    ]);
    output(build.current_dir(root))?;
    Ok(crate::target(root).join("debug/membership"))
}
