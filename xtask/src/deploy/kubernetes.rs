//! The manifests against the schemas of Kubernetes, rendered by kustomize where the machine has it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::queries::{array, text};
use super::tools::{Tools, is_there};
use crate::{Failure, output, say};

const FOLDER: &str = "deploy/kubernetes";
/// What an operator applies.
const VARIANTS: [&str; 3] = ["statefulset", "deployment", "monitoring"];
/// The newest, and the oldest that has the sleep of the preStop hook.
const VERSIONS: [&str; 2] = ["1.37", "1.30"];
/// Kinds that are not Kubernetes' own: there is no schema of them here.
const WITHOUT_SCHEMA: [&str; 3] = ["Kustomization", "PrometheusRule", "ServiceMonitor"];

/// Validates strictly; prints the kinds with a schema, and those without after a minus.
const SCRIPT: &str = r"
import sys, yaml, kubernetes_validate as k
for document in yaml.safe_load_all(open(sys.argv[1], encoding='utf-8')):
    try:
        k.validate(document, sys.argv[2], strict=True)
        print(document['kind'])
    except k.SchemaNotFoundError:
        print('-' + document['kind'])
    except k.ValidationError as error:
        kind, path = document['kind'], '.'.join(map(str, error.path))
        sys.exit(f'{sys.argv[1]}: {kind} {path}: {error.message}')
";

pub(super) fn check(tools: &Tools, root: &Path) -> Result<(), Failure> {
    let folder = root.join(FOLDER);
    same_pods(tools, &folder)?;
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(&folder)? {
        for file in fs::read_dir(entry?.path())? {
            files.push(file?.path());
        }
    }
    files.sort();
    let place = tempfile::tempdir()?;
    let mut rendered = Vec::new();
    for variant in VARIANTS {
        if let Some(mut kustomize) = kustomize() {
            let file = place.path().join(format!("{variant}.yaml"));
            fs::write(&file, output(kustomize.arg(folder.join(variant)))?)?;
            rendered.push(file);
        }
    }
    for version in VERSIONS {
        let mut valid = 0;
        for file in files.iter().chain(&rendered) {
            let validated = tools.python(SCRIPT).arg(file).arg(version).output()?;
            if !validated.status.success() {
                let why = String::from_utf8_lossy(&validated.stderr);
                return Err(Failure::new(format!(
                    "Kubernetes {version}: {}",
                    why.trim()
                )));
            }
            let said = String::from_utf8_lossy(&validated.stdout);
            for kind in said.lines() {
                match kind.strip_prefix('-') {
                    None => valid += 1,
                    Some(kind) if WITHOUT_SCHEMA.contains(&kind) => {}
                    Some(kind) => {
                        return Err(Failure::new(format!(
                            "{}: Kubernetes {version} has no kind {kind}",
                            file.display()
                        )));
                    }
                }
            }
        }
        if valid == 0 {
            return Err(Failure::new(format!("{FOLDER} has no manifest")));
        }
        say(&format!(
            "{FOLDER}: {valid} resources are valid for Kubernetes {version}"
        ));
    }
    if rendered.is_empty() {
        say(&format!(
            "{FOLDER}: NOT RUN here, for lack of kubectl and kustomize: rendering"
        ));
    } else {
        say(&format!(
            "{FOLDER}: kustomize renders {}",
            VARIANTS.join(", ")
        ));
    }
    Ok(())
}

/// The program that renders a folder.
fn kustomize() -> Option<Command> {
    if is_there("kustomize", "version") {
        let mut command = Command::new("kustomize");
        command.arg("build");
        return Some(command);
    }
    // Any version of kubectl that prints its options renders folders.
    is_there("kubectl", "options").then(|| {
        let mut command = Command::new("kubectl");
        command.arg("kustomize");
        command
    })
}

/// A StatefulSet and a Deployment run the same pod, which says where it listens, when it is ready
/// and how it leaves.
fn same_pods(tools: &Tools, folder: &Path) -> Result<(), Failure> {
    let pod = |variant: &str| -> Result<Value, Failure> {
        let file = folder.join(variant).join(format!("{variant}.yaml"));
        let documents = tools.yaml(&file)?;
        Ok(documents
            .first()
            .map_or(Value::Null, |first| first["spec"]["template"].clone()))
    };
    let (set, deployment) = (pod("statefulset")?, pod("deployment")?);
    if set != deployment || set.is_null() {
        return Err(Failure::new(format!(
            "the pods of {FOLDER}/statefulset and {FOLDER}/deployment differ: they must be the same"
        )));
    }
    let container = &set["spec"]["containers"][0];
    let grace = set["spec"]["terminationGracePeriodSeconds"].as_u64();
    let sleep = container["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64();
    // 30 s: leave_timeout of the preset lan.
    if grace.unwrap_or(0) < sleep.unwrap_or(0) + 30 {
        return Err(Failure::new(format!(
            "{FOLDER}: the grace period does not cover the preStop hook and leave_timeout, 30 s"
        )));
    }
    let env = array(&container["env"]);
    let ip = env.iter().find(|one| text(&one["name"]) == "POD_IP");
    if ip.is_none_or(|ip| text(&ip["valueFrom"]["fieldRef"]["fieldPath"]) != "status.podIP") {
        return Err(Failure::new(format!(
            "{FOLDER}: no POD_IP from status.podIP"
        )));
    }
    Ok(())
}
