//! One build of all tests that need more than the default features, so that nothing is compiled twice for want of the same features.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::providers::{PROVIDERS, SILOS, SUITE};
use crate::{Failure, cargo, output};

/// A test program.
#[derive(Clone, Debug)]
pub struct Program {
    pub package: String,
    pub target: String,
    /// The folder that its tests expect to be in.
    pub folder: PathBuf,
    pub path: PathBuf,
}

/// What is built: always the same packages with the same features, whichever shares are asked for.
#[derive(Debug)]
pub struct Plan {
    packages: BTreeSet<String>,
    features: BTreeSet<String>,
    targets: BTreeSet<String>,
}

impl Plan {
    /// Everything that the table names.
    pub fn new(root: &Path, containers: bool) -> Result<Self, Failure> {
        let text = output(
            Command::new(cargo())
                .args(["metadata", "--locked", "--no-deps", "--format-version", "1"])
                .current_dir(root),
        )?;
        let metadata: Value = serde_json::from_str(&text)?;
        let known = metadata["packages"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let mut plan = Self {
            packages: BTreeSet::new(),
            features: BTreeSet::new(),
            targets: BTreeSet::new(),
        };
        let (silos, full, stores) = SILOS;
        for (package, features) in PROVIDERS
            .iter()
            .map(|line| (line.package, line.features))
            .chain([(silos, [full].as_slice())])
        {
            let found = known.iter().find(|one| one["name"] == package);
            let found = found.filter(|one| features.iter().all(|feature| !one["features"][feature].is_null())).ok_or_else(|| {
                Failure::new(format!("xtask/src/test/providers.rs names the package {package} with {features:?}, which is not there"))
            })?;
            plan.packages.insert(package.to_owned());
            plan.features.extend(
                features
                    .iter()
                    .map(|feature| format!("{package}/{feature}")),
            );
            for target in found["targets"].as_array().into_iter().flatten() {
                let name = target["name"].as_str().unwrap_or_default();
                let is_test = target["kind"]
                    .as_array()
                    .is_some_and(|kinds| kinds.iter().any(|kind| kind == "test"));
                if is_test && (package != silos || name == stores || name == SUITE) {
                    plan.targets.insert(name.to_owned());
                }
            }
        }
        if containers {
            plan.features
                .insert("conformance-tests/containers".to_owned());
        }
        Ok(plan)
    }

    /// `cargo test` of these packages with these features.
    pub fn command(&self, root: &Path) -> Command {
        let mut command = Command::new(cargo());
        command.args(["test", "--locked"]).current_dir(root);
        for package in &self.packages {
            command.args(["--package", package]);
        }
        command.arg("--features").arg(
            self.features
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(","),
        );
        command
    }

    /// Compiles the tests and answers the programs.
    pub fn build(&self, root: &Path) -> Result<Vec<Program>, Failure> {
        let mut command = self.command(root);
        command.args([
            "--no-run",
            "--message-format=json-render-diagnostics",
            "--lib",
            "--bins",
        ]);
        for target in &self.targets {
            command.args(["--test", target]);
        }
        let text = output(command.stderr(Stdio::inherit()))?;
        let mut programs = Vec::new();
        for message in text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        {
            let is_test =
                message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
            let (Some(path), true) = (message["executable"].as_str(), is_test) else {
                continue;
            };
            let manifest = PathBuf::from(message["manifest_path"].as_str().unwrap_or_default());
            let folder = manifest.parent().map(Path::to_path_buf).unwrap_or_default();
            let target = message["target"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            let package = package_name(message["package_id"].as_str().unwrap_or_default());
            programs.push(Program {
                package,
                target,
                folder,
                path: PathBuf::from(path),
            });
        }
        programs.sort_by(|a, b| (&a.package, &a.target).cmp(&(&b.package, &b.target)));
        Ok(programs)
    }
}

/// The name in an id like `path+file:///folder/name#0.1.0` or `path+file:///folder/other#name@0.1.0`.
fn package_name(id: &str) -> String {
    let (place, rest) = id.rsplit_once('#').unwrap_or(("", id));
    match rest.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => place.rsplit('/').next().unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_named_by_its_id() {
        assert_eq!(
            package_name("path+file:///a/membership-redis#0.1.0"),
            "membership-redis"
        );
        assert_eq!(
            package_name("path+file:///a/membership#silo-membership@0.1.0"),
            "silo-membership"
        );
    }

    #[test]
    fn the_table_names_packages_that_exist() {
        let plan = Plan::new(&crate::root(), false).unwrap();
        assert!(
            plan.packages.contains("conformance-tests") && plan.targets.contains("launch"),
            "{plan:?}"
        );
    }
}
