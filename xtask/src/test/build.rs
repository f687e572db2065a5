//! One build of all tests with all features, so that nothing is compiled twice because of another
//! choice of features; or, where only some stores are requested, of their tests alone. Only the client of a Docker engine, 36 crates, is left out where servers are
//! processes of this machine.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::shares::{BY_DEFAULT, LIBRARY, PROGRAM, STORES, Share, is_chosen, shares};

/// The feature for servers as containers.
const CONTAINERS: (&str, &str) = ("membership-testbed", "containers");
/// Packages without a library that a server's test needs.
const WITHOUT_SERVERS: [&str; 3] = ["membership-gossip", "membership-sim", "membership-testing"];

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

/// The packages to build, and their features.
#[derive(Debug)]
pub struct Plan {
    targets: BTreeSet<String>,
    /// The only packages; all if there are none here.
    packages: BTreeSet<String>,
    features: Vec<String>,
}

impl Plan {
    /// Every test that belongs to a share; with servers as containers or as processes.
    ///
    /// # Errors
    /// A share names a package that does not exist.
    pub fn new(root: &Path, containers: bool) -> Result<Self, Failure> {
        let metadata = metadata(root)?;
        let packages = metadata["packages"].as_array().map(Vec::as_slice);
        let packages = packages.unwrap_or_default();
        let mut targets = BTreeSet::new();
        for share in shares() {
            if !packages.iter().any(|one| one["name"] == share.package) {
                return Err(Failure::new(format!(
                    "a share of the tests names the package {}, which does not exist",
                    share.package
                )));
            }
            targets.extend(self::targets(&metadata, share.package));
        }
        let features = packages
            .iter()
            .flat_map(features)
            .filter(|one| containers || *one != CONTAINERS)
            .map(|(package, feature)| format!("{package}/{feature}"))
            .collect();
        Ok(Self {
            targets,
            packages: BTreeSet::new(),
            features,
        })
    }

    /// The tests of these shares, with the features of their packages, and the program's test of
    /// silos with the features for their stores. Everything if a share tests the library or the
    /// program itself.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of(root: &Path, containers: bool, shares: &[&Share]) -> Result<Self, Failure> {
        let mut plan = Self::new(root, containers)?;
        if shares
            .iter()
            .any(|it| [LIBRARY, PROGRAM].contains(&it.package))
        {
            return Ok(plan);
        }
        let metadata = metadata(root)?;
        let features = |package: &str| {
            let packages = metadata["packages"].as_array().into_iter().flatten();
            let mut packages = packages.filter(move |one| one["name"] == package);
            packages.next().map(|one| one["features"].clone())
        };
        // Features whose list has one of these entries.
        let naming = |package: &str, entries: &BTreeSet<String>| -> BTreeSet<String> {
            let all = features(package).unwrap_or_default();
            let names = |list: &Value| {
                let mut list = list.as_array().into_iter().flatten();
                list.any(|one| one.as_str().is_some_and(|one| entries.contains(one)))
            };
            let all = all.as_object().into_iter().flatten();
            let found = all.filter(|(_, list)| names(list));
            found.map(|(feature, _)| feature.clone()).collect()
        };
        let own: BTreeSet<String> = shares.iter().map(|it| it.package.to_owned()).collect();
        let of_library = naming(LIBRARY, &prefixed("dep:", &own));
        let of_program = naming(PROGRAM, &prefixed(&format!("{LIBRARY}/"), &of_library));
        plan.features.retain(|one| {
            let (package, feature) = one.split_once('/').unwrap_or_default();
            own.contains(package) || (package == PROGRAM && of_program.contains(feature))
        });
        plan.targets = own.iter().flat_map(|it| targets(&metadata, it)).collect();
        plan.packages = own;
        if !of_program.is_empty() {
            plan.packages.insert(PROGRAM.to_owned());
            plan.targets.insert(STORES.to_owned());
        }
        Ok(plan)
    }

    /// `cargo test` of these packages with these features.
    pub fn command(&self, root: &Path) -> Command {
        let mut command = cargo();
        command
            .args(["test", "--locked", "--features"])
            .arg(self.features.join(","))
            .current_dir(root);
        for package in &self.packages {
            command.args(["--package", package]);
        }
        if self.packages.is_empty() {
            command.arg("--workspace");
            for package in BY_DEFAULT {
                command.args(["--exclude", package]);
            }
        }
        command
    }

    /// Compiles the libraries that the tests need, and no program: other tests may be running
    /// programs of the same names.
    ///
    /// # Errors
    /// The compiler has written its errors to standard error.
    pub fn build_libraries(&self, root: &Path) -> Result<(), Failure> {
        let mut command = self.command(root);
        command.args(["--no-run", "--lib"]);
        for package in WITHOUT_SERVERS {
            command.args(["--exclude", package]);
        }
        if command.status()?.success() {
            return Ok(());
        }
        Err(Failure::new("the libraries do not compile"))
    }

    /// Compiles the tests; returns the programs.
    ///
    /// # Errors
    /// The compiler has written its errors to standard error.
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
        let messages = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let mut programs: Vec<Program> = messages.filter_map(|message| program(&message)).collect();
        programs.sort_by(|a, b| (&a.package, &a.target).cmp(&(&b.package, &b.target)));
        Ok(programs)
    }
}

fn metadata(root: &Path) -> Result<Value, Failure> {
    let mut metadata = cargo();
    metadata.args(["metadata", "--locked", "--no-deps", "--format-version", "1"]);
    Ok(serde_json::from_str(&output(metadata.current_dir(root))?)?)
}

/// The integration tests of a package that belong to a share.
fn targets(metadata: &Value, package: &str) -> BTreeSet<String> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let targets = packages
        .filter(|one| one["name"] == package)
        .flat_map(|one| one["targets"].as_array().into_iter().flatten());
    let is_test = |target: &&Value| {
        let mut kinds = target["kind"].as_array().into_iter().flatten();
        kinds.any(|kind| kind == "test")
    };
    let names = targets.filter(is_test).filter_map(|it| it["name"].as_str());
    let chosen = names.filter(|name| is_chosen(package, name));
    chosen.map(str::to_owned).collect()
}

fn prefixed(prefix: &str, names: &BTreeSet<String>) -> BTreeSet<String> {
    names.iter().map(|name| format!("{prefix}{name}")).collect()
}

/// The features of a package, each with its package.
fn features(package: &Value) -> impl Iterator<Item = (&str, &str)> {
    let name = package["name"].as_str().unwrap_or_default();
    let features = package["features"].as_object().into_iter().flatten();
    features.map(move |(feature, _)| (name, feature.as_str()))
}

/// The test program that a message of cargo's reports, if it reports one.
fn program(message: &Value) -> Option<Program> {
    let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
    let path = message["executable"].as_str().filter(|_| is_test)?;
    let manifest = PathBuf::from(message["manifest_path"].as_str().unwrap_or_default());
    Some(Program {
        package: package_name(message["package_id"].as_str().unwrap_or_default()),
        target: message["target"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        folder: manifest.parent().map(Path::to_path_buf).unwrap_or_default(),
        path: PathBuf::from(path),
    })
}

/// The name in an id like `path+file:///folder/name#0.1.0` or
/// `path+file:///folder/other#name@0.1.0`.
fn package_name(id: &str) -> String {
    let (folder, rest) = id.rsplit_once('#').unwrap_or(("", id));
    match rest.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => folder.rsplit('/').next().unwrap_or_default().to_owned(),
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
    fn a_share_alone_builds_its_package_and_the_silos_over_its_store() {
        let of = |name| {
            let share = super::super::shares::named(name).unwrap();
            Plan::of(&crate::root(), false, &[share]).unwrap()
        };
        let names = |list: &BTreeSet<String>| list.iter().cloned().collect::<Vec<_>>();
        let plan = of("zookeeper-set");
        assert_eq!(names(&plan.packages), ["membership-cli", "membership-zk"]);
        assert_eq!(names(&plan.targets), ["conformance", "servers", "stores"]);
        let of_program = |one: &&String| one.starts_with("membership-cli/");
        let program: Vec<&String> = plan.features.iter().filter(of_program).collect();
        assert_eq!(program, ["membership-cli/zk"]);
        // A store without a feature of the program, and what tests the whole program.
        assert_eq!(names(&of("toy-store").packages), ["toy-store"]);
        assert!(of("program").packages.is_empty());
    }

    #[test]
    fn the_table_names_packages_that_exist() {
        let plan = Plan::new(&crate::root(), false).unwrap();
        for target in ["conformance", "launch", "servers", "stores"] {
            assert!(plan.targets.contains(target), "{target}: {plan:?}");
        }
        assert!(!plan.targets.contains("demo"), "{plan:?}");
        let (package, feature) = CONTAINERS;
        let containers = format!("{package}/{feature}");
        assert!(!plan.features.contains(&containers), "{plan:?}");
        let both = Plan::new(&crate::root(), true).unwrap();
        assert!(both.features.contains(&containers), "{both:?}");
        assert_eq!(both.features.len(), plan.features.len() + 1);
    }
}
