//! The folder, programs and user of one server, and helpers for the files of its software.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::install::Tree;
use crate::kind::Kind;
use crate::launch::error::LaunchError;
use crate::launch::options::Options;
use crate::launch::tls::Tls;

/// Everything that one server of the launcher needs.
#[derive(Debug)]
pub(in crate::launch) struct Ground {
    pub(in crate::launch) kind: Kind,
    pub(in crate::launch) options: Options,
    /// The programs; a copy if the server's user cannot reach the installed ones.
    pub(in crate::launch) tree: Tree,
    /// The folder that is removed with the server; it contains the others.
    pub(in crate::launch) root: PathBuf,
    pub(in crate::launch) port: u16,
    /// The user of the server, if it must not be root.
    pub(in crate::launch) user: Option<u32>,
}

impl Ground {
    /// The address on which the server listens.
    pub(in crate::launch) fn host(&self) -> Ipv4Addr {
        self.options.host.unwrap_or(Ipv4Addr::LOCALHOST)
    }

    /// The server's files.
    pub(in crate::launch) fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    /// Sockets and other small files, removed with the server.
    pub(in crate::launch) fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    /// The server's log.
    pub(in crate::launch) fn log(&self) -> PathBuf {
        self.root.join("log")
    }

    /// A command of an installed program, with the server's user and the downloaded libraries.
    pub(in crate::launch) fn command(&self, program: &str) -> Result<Command, LaunchError> {
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

    /// Sets user, folder and libraries.
    pub(in crate::launch) fn environment(&self, command: &mut Command) {
        use std::os::unix::process::CommandExt as _;
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        if let Some(libraries) = self.tree.library_path() {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        // Neither the language nor the time zone of this machine.
        command.env("LC_ALL", "C").env("TZ", "GMT");
        // A separate folder for temporary files: two MariaDBs that are being created use the same
        // names.
        command
            .env("HOME", self.run())
            .env("TMPDIR", self.run())
            .current_dir(self.run());
    }

    /// The test's further arguments, with the placeholders replaced.
    pub(in crate::launch) fn extra(&self) -> impl Iterator<Item = String> {
        self.options.args.iter().map(|argument| {
            argument
                .replace("{dir}", &self.data().to_string_lossy())
                .replace("{port}", &self.port.to_string())
        })
    }
}

/// Runs a program to its end. Its output is in the error.
pub(in crate::launch) fn finish(
    ground: &Ground,
    mut command: Command,
    what: &str,
) -> Result<(), LaunchError> {
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

/// The end of a log, for an error.
pub(in crate::launch) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines
        .get(lines.len().saturating_sub(15)..)
        .unwrap_or_default()
        .join("\n")
}

/// Percent-encodes characters that the password of a URL must not contain.
pub(in crate::launch) fn in_url(text: &str) -> String {
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

/// Passes certificate, key and authority to the function that builds the arguments.
pub(in crate::launch) fn tls_arguments(ground: &Ground, add: impl FnOnce(&Path, &Path, &Path)) {
    let files = Tls::within(&ground.root);
    add(&files.certificate, &files.key, &files.ca);
}

/// Makes the server's user the owner of a file.
pub(in crate::launch) fn own(ground: &Ground, path: &Path) -> Result<(), LaunchError> {
    match ground.user {
        Some(user) => std::os::unix::fs::chown(path, Some(user), Some(user))
            .map_err(LaunchError::io("cannot hand over", path)),
        None => Ok(()),
    }
}

pub(in crate::launch) fn file(path: &Path, text: &str) -> Result<(), LaunchError> {
    std::fs::write(path, text).map_err(LaunchError::io("cannot write", path))
}
