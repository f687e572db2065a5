//! The programs that read `deploy/`: promtool and Prometheus, and Python with what validates
//! manifests. Installed as the servers are.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use membership_testbed::install::{self, Tree};
use serde_json::Value;

use crate::{Failure, output, say};

/// Knows the kinds of Kubernetes 1.37 and of older ones.
const VALIDATOR: (&str, &str) = ("kubernetes-validate", "1.37.0");

/// What is installed.
pub(super) struct Tools {
    prometheus: Tree,
    python: PathBuf,
}

impl Tools {
    /// Installs what is missing.
    pub(super) fn ready() -> Result<Self, Failure> {
        let home = install::home();
        let progress = |line: &str| say(&format!("tools: {line}"));
        let failed = |what: &str, why: String| {
            Failure::new(format!(
                "{what} cannot be installed: {why}. It takes apt-get and dpkg-deb of Debian or Ubuntu, and Python with pip"
            ))
        };
        let prometheus =
            install::prometheus(&home, &progress).map_err(|why| failed("Prometheus", why))?;
        let (package, version) = VALIDATOR;
        let python = install::python(&home, package, version, &progress)
            .map_err(|why| failed(package, why))?;
        Ok(Self { prometheus, python })
    }

    /// The version of Prometheus.
    pub(super) fn version(&self) -> &str {
        &self.prometheus.version
    }

    /// `prometheus` or `promtool`.
    pub(super) fn program(&self, name: &str) -> Result<Command, Failure> {
        let missing = || Failure::new(format!("Prometheus has no program '{name}'"));
        let mut command = Command::new(self.prometheus.binary(name).ok_or_else(missing)?);
        if let Some(libraries) = self.prometheus.library_path() {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        Ok(command)
    }

    /// Python with a script and the installed packages.
    pub(super) fn python(&self, script: &str) -> Command {
        let mut command = Command::new("python3");
        command
            .env("PYTHONPATH", &self.python)
            .arg("-c")
            .arg(script);
        command
    }

    /// The documents of a YAML file, as JSON.
    pub(super) fn yaml(&self, file: &Path) -> Result<Vec<Value>, Failure> {
        let script = "import json, sys, yaml\n\
                      print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1], encoding='utf-8')))))";
        let text = output(self.python(script).arg(file))?;
        Ok(serde_json::from_str(&text)?)
    }
}

/// Whether the machine has this program.
pub(super) fn is_there(program: &str, argument: &str) -> bool {
    let mut command = Command::new(program);
    command.arg(argument).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
