//! Prints which servers the tests can use on this machine, before they start.

use std::collections::BTreeSet;

use super::shares::Share;
use crate::say;
use membership_testbed::Kind;
use membership_testbed::install::{self, Tool};

/// The shares that can be tested here, and those that cannot.
pub struct Available {
    pub shares: Vec<&'static Share>,
    /// A line for each store that cannot be tested: its name, and the missing tools.
    pub missing: Vec<String>,
}

/// Sorts the shares by whether this machine has what their servers need, and prints the result.
pub fn sort(chosen: Vec<&'static Share>, containers: bool) -> Available {
    let home = install::home();
    let servers: BTreeSet<&str> = chosen
        .iter()
        .filter_map(|share| share.server.map(Kind::name))
        .collect();
    if servers.is_empty() {
        return Available {
            shares: chosen,
            missing: vec![],
        };
    }
    let (mut here, mut missing, mut lacking) = (Vec::new(), Vec::new(), BTreeSet::new());
    for kind in Kind::ALL
        .iter()
        .copied()
        .filter(|kind| servers.contains(kind.name()))
    {
        let lacks = if is_given(kind) {
            vec![]
        } else if containers {
            install::missing_for_containers()
        } else {
            install::missing_tools(&home, kind)
        };
        if lacks.is_empty() {
            here.push(kind.name());
        } else {
            missing.push(format!("{kind}: this machine lacks {}", names(&lacks)));
            lacking.insert(kind.name());
        }
    }
    say(&format!("can be tested here: {}", list(&here)));
    for line in &missing {
        say(&format!("cannot be tested here: {line}"));
    }
    let shares = chosen.into_iter().filter(|share| {
        share
            .server
            .is_none_or(|kind| !lacking.contains(kind.name()))
    });
    Available {
        shares: shares.collect(),
        missing,
    }
}

/// Whether the environment names an external server.
pub fn is_given(kind: Kind) -> bool {
    let mut variables = kind.url_variables().iter();
    variables.any(|name| std::env::var_os(name).is_some())
}

fn names(tools: &[Tool]) -> String {
    let names: Vec<&str> = tools.iter().map(|tool| tool.name).collect();
    names.join(" and ")
}

fn list(names: &[&str]) -> String {
    if names.is_empty() {
        "no store with a server".to_owned()
    } else {
        names.join(", ")
    }
}
