//! Silos as processes, with signals for faults.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::Failure;

/// How long a silo may take to leave or to end.
const END: Duration = Duration::from_secs(60);

const SECRET: &str = "the secret of all staged silos: 3f9c1e77ab\n";

/// The table of the staged cluster, in a folder of its own.
pub(super) fn table_file(folder: &Path) -> PathBuf {
    folder.join("table/membership.db")
}

/// A link to the folder of the table.
pub(super) fn link(folder: &Path) -> PathBuf {
    folder.join("link")
}

/// The table as an argument.
pub(super) fn url(file: &Path) -> String {
    format!("sqlite:{}", file.display())
}

/// The program on this table, with nothing else from the environment.
pub(super) fn command(program: &Path, table: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("MEMBERSHIP_") {
            command.env_remove(name);
        }
    }
    command.env("MEMBERSHIP_TABLE", table);
    command
}

/// Free ports of 127.0.0.1, below those that the system assigns by itself, so that a silo finds its
/// own again after a restart.
pub(super) fn ports(count: usize) -> Result<Vec<u16>, Failure> {
    let first = 20_000 + u16::try_from(std::process::id() % 100).unwrap_or(0) * 100;
    let free = (first..32_000).filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    let ports: Vec<u16> = free.take(count).collect();
    match ports.len() == count {
        true => Ok(ports),
        false => Err(Failure::new(format!(
            "127.0.0.1 has no {count} free ports from {first} on"
        ))),
    }
}

/// One silo: how it is started, and its process while it runs. Dropping it kills the process.
pub(super) struct Silo {
    program: PathBuf,
    folder: PathBuf,
    port: u16,
    table: String,
    name: String,
    arguments: Vec<String>,
    variables: BTreeMap<String, String>,
    process: Option<Child>,
}

impl Silo {
    pub(super) fn new(program: &Path, folder: &Path, name: &str, port: u16) -> Self {
        let arguments = ["silo", "--exit-with-stdin", "--json", "--preset", "local"];
        let mut silo = Self {
            program: program.to_owned(),
            folder: folder.to_owned(),
            port,
            table: url(&table_file(folder)),
            name: name.to_owned(),
            arguments: arguments.map(str::to_owned).to_vec(),
            variables: BTreeMap::new(),
            process: None,
        };
        silo.with("--name", name);
        silo.with("--listen", &format!("127.0.0.1:{port}"));
        silo.with("--secret-file", &silo.secret().to_string_lossy());
        silo
    }

    /// A silo with these arguments and variables, and a table of its own.
    pub(super) fn bare(
        program: &Path,
        folder: &Path,
        name: &str,
        arguments: &[String],
        variables: &BTreeMap<String, String>,
    ) -> Self {
        let mut silo = Self::new(program, folder, name, 0);
        silo.table = url(&folder.join(format!("table/{name}.db")));
        silo.arguments = arguments.to_vec();
        silo.arguments.push("--exit-with-stdin".to_owned());
        silo.variables.clone_from(variables);
        silo
    }

    /// What it has said.
    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join(format!("{}.log", self.name))).unwrap_or_default()
    }

    /// Its own file with the secret of all.
    pub(super) fn secret(&self) -> PathBuf {
        self.folder.join(format!("{}.secret", self.name))
    }

    fn with(&mut self, option: &str, value: &str) {
        self.arguments.extend([option.to_owned(), value.to_owned()]);
    }

    pub(super) fn http(mut self, port: u16) -> Self {
        self.with("--http", &format!("127.0.0.1:{port}"));
        self
    }

    pub(super) fn advertise(mut self, port: u16) -> Self {
        self.with("--advertise", &format!("127.0.0.1:{port}"));
        self
    }

    /// It reaches the table by the link.
    pub(super) fn table_by_link(mut self) -> Self {
        self.table = url(&link(&self.folder).join("membership.db"));
        self
    }

    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// Starts the process. It ends with this program, because its standard input does.
    pub(super) fn start(mut self) -> Result<Self, Failure> {
        self.restart()?;
        Ok(self)
    }

    pub(super) fn restart(&mut self) -> Result<(), Failure> {
        self.kill()?;
        if !self.secret().exists() {
            std::fs::write(self.secret(), SECRET)?;
        }
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.folder.join(format!("{}.log", self.name)))?;
        let mut command = command(&self.program, &self.table);
        command.args(&self.arguments).envs(&self.variables);
        command.stdin(Stdio::piped());
        command.stdout(log.try_clone()?).stderr(log);
        self.process = Some(command.spawn()?);
        Ok(())
    }

    /// SIGKILL, and waits for the end.
    pub(super) fn kill(&mut self) -> Result<(), Failure> {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    /// SIGTERM, and waits until it has left.
    pub(super) fn leave(&mut self) -> Result<(), Failure> {
        self.signal(Signal::TERM)?;
        let deadline = Instant::now() + END;
        while let Some(process) = &mut self.process {
            if let Some(status) = process.try_wait()? {
                self.process = None;
                return match status.success() {
                    true => Ok(()),
                    false => Err(Failure::new(format!(
                        "{} did not leave: {status}",
                        self.name
                    ))),
                };
            }
            if Instant::now() > deadline {
                return Err(Failure::new(format!("{} does not leave", self.name)));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Stops the process for one time and lets it run for another.
    pub(super) fn stutter(&self, stopped: Duration, running: Duration) -> Result<(), Failure> {
        self.signal(Signal::STOP)?;
        std::thread::sleep(stopped);
        self.signal(Signal::CONT)?;
        std::thread::sleep(running);
        Ok(())
    }

    /// The id of its process.
    pub(super) fn process(&self) -> Result<u32, Failure> {
        let stopped = || Failure::new(format!("{} does not run", self.name));
        self.process.as_ref().map(Child::id).ok_or_else(stopped)
    }

    fn signal(&self, signal: Signal) -> Result<(), Failure> {
        match i32::try_from(self.process()?).ok().and_then(Pid::from_raw) {
            Some(pid) => Ok(kill_process(pid, signal)?),
            None => Err(Failure::new("the id of a process is 0")),
        }
    }
}

impl Drop for Silo {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
