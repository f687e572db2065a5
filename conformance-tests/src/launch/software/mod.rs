//! What is special about each server: how its files are made, how it is started, and the smallest real call that it answers.

mod azurite;
mod cassandra;
pub(super) mod consul;
mod dynamodb;
pub(super) mod etcd;
mod mariadb;
pub(super) mod mongodb;
mod postgres;
mod redis;
pub(super) mod wire;
mod zookeeper;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use super::install::Tree;
use super::{Kind, LaunchError, Options, Tls};

/// Everything one server of ours stands on.
#[derive(Debug)]
pub(super) struct Ground {
    pub(super) kind: Kind,
    pub(super) options: Options,
    /// The programs; a copy where the server's user may not reach the installed ones.
    pub(super) tree: Tree,
    /// The folder that is removed in the end; holds the others.
    pub(super) root: PathBuf,
    pub(super) port: u16,
    /// Who the server runs as, where it must not be root.
    pub(super) user: Option<u32>,
}

impl Ground {
    /// The server's files.
    pub(super) fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    /// Sockets and other small things, gone with the server.
    pub(super) fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    /// What the server says.
    pub(super) fn log(&self) -> PathBuf {
        self.root.join("log")
    }

    /// A command of an installed program, as the server's user, with the libraries that were brought along.
    pub(super) fn command(&self, program: &str) -> Result<Command, LaunchError> {
        let path = self.tree.binary(program).ok_or_else(|| {
            LaunchError::Install(format!(
                "{} lacks the program '{program}'",
                self.tree.root.display()
            ))
        })?;
        let mut command = Command::new(path);
        self.environment(&mut command);
        Ok(command)
    }

    /// User, folder and libraries.
    pub(super) fn environment(&self, command: &mut Command) {
        use std::os::unix::process::CommandExt as _;
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        if let Some(libraries) = self.tree.library_path() {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        // Neither the user's language nor the clock of this place.
        command.env("LC_ALL", "C").env("TZ", "GMT");
        // Temporary files of its own: those of two MariaDBs that are being made have the same names.
        command
            .env("HOME", self.run())
            .env("TMPDIR", self.run())
            .current_dir(self.run());
    }

    /// The arguments that the test adds, its places filled in.
    pub(super) fn extra(&self) -> impl Iterator<Item = String> {
        self.options.args.iter().map(|argument| {
            argument
                .replace("{dir}", &self.data().to_string_lossy())
                .replace("{port}", &self.port.to_string())
        })
    }
}

/// What is special about a server.
pub(super) trait Software: Send + Sync {
    /// Makes the files of an empty server in the data folder.
    fn create(&self, ground: &Ground) -> Result<(), LaunchError>;
    /// The command that runs it in the foreground.
    fn command(&self, ground: &Ground) -> Result<Command, LaunchError>;
    /// One real call over the network: whether it serves.
    fn ask(&self, address: SocketAddr, options: &Options) -> io::Result<()>;
    /// The same over what a process of ours offers beside, where the network alone does not tell.
    fn ask_inside(&self, _: &Ground) -> io::Result<()> {
        Ok(())
    }
    /// What a container of the official image is told: its program and our arguments.
    #[cfg_attr(not(feature = "containers"), allow(dead_code))]
    fn container_command(&self, options: &Options) -> Vec<String>;
    /// And its environment.
    #[cfg_attr(not(feature = "containers"), allow(dead_code))]
    fn container_environment(&self, _: &Options) -> Vec<(&'static str, String)> {
        Vec::new()
    }
    /// Asks it to stop in order.
    fn stop_signal(&self) -> Signal {
        Signal::TERM
    }
    /// Whether it refuses to run as root, or should not.
    fn refuses_root(&self) -> bool {
        false
    }
    /// Whether its files are kept in memory, where that is possible, because it waits for the disk far more often than once for what it
    /// acknowledges. Tests end processes, not machines.
    fn flushes_too_much(&self) -> bool {
        false
    }
    /// Whether it answers a write before it has done it, as the first of everything that it does next. Then a test's kill waits for an answer
    /// first: what was acknowledged before that is there afterwards.
    fn acknowledges_early(&self) -> bool {
        false
    }
    /// Whether the installed server was built with TLS.
    fn offers_tls(&self) -> bool {
        true
    }
    /// The address as its provider takes it.
    fn url(&self, address: SocketAddr, options: &Options) -> String;
    /// Where a URL of somebody else's server leads: `host` or `host:port`. Without it, to the first host of the URL.
    fn place(&self, _url: &str) -> Option<String> {
        None
    }
    /// Where it listens when nobody says otherwise.
    fn usual_port(&self) -> u16;
}

pub(super) fn of(kind: Kind) -> &'static dyn Software {
    match kind {
        Kind::Redis => &redis::Redis {
            program: "redis-server",
            offers_tls: true,
        },
        Kind::Valkey => &redis::Redis {
            program: "valkey-server",
            offers_tls: false,
        },
        Kind::Postgres => &postgres::Postgres,
        Kind::MariaDb => &mariadb::MariaDb,
        Kind::Azurite => &azurite::Azurite,
        Kind::MongoDb => &mongodb::MongoDb,
        Kind::DynamoDb => &dynamodb::DynamoDb,
        Kind::Consul => &consul::Consul,
        Kind::Etcd => &etcd::Etcd,
        Kind::ZooKeeper => &zookeeper::ZooKeeper,
        Kind::Cassandra => &cassandra::Cassandra,
    }
}

/// How long one question may take.
const ANSWER: Duration = Duration::from_secs(5);

/// Runs a program to its end; what it said if it fails.
fn finish(ground: &Ground, mut command: Command, what: &str) -> Result<(), LaunchError> {
    let output = command
        .output()
        .map_err(LaunchError::io("cannot run", command.get_program()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Err(LaunchError::Start {
        kind: ground.kind,
        why: format!("{what} failed ({})", output.status),
        log: last_lines(&said),
    })
}

/// As much of a log as a person wants to see in an error.
pub(super) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines
        .get(lines.len().saturating_sub(15)..)
        .unwrap_or_default()
        .join("\n")
}

/// Percent-encodes what may not stand in the password of a URL.
pub(super) fn in_url(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Hands certificate, key and authority to whoever builds the arguments.
fn tls_arguments(ground: &Ground, add: impl FnOnce(&Path, &Path, &Path)) {
    let files = Tls::within(&ground.root);
    add(&files.certificate, &files.key, &files.ca);
}

/// Gives a file to the server's user.
fn own(ground: &Ground, path: &Path) -> Result<(), LaunchError> {
    match ground.user {
        Some(user) => std::os::unix::fs::chown(path, Some(user), Some(user))
            .map_err(LaunchError::io("cannot hand over", path)),
        None => Ok(()),
    }
}

fn file(path: &Path, text: &str) -> Result<(), LaunchError> {
    std::fs::write(path, text).map_err(LaunchError::io("cannot write", path))
}
