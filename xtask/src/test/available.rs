//! Prints which servers the tests can use on this machine, before they start.

use std::collections::BTreeSet;

use super::shares::Share;
use crate::{Failure, say};
use membership_testbed::Kind;
use membership_testbed::install;

/// The shares that can be tested here, and those that cannot.
pub struct Available {
    pub shares: Vec<&'static Share>,
    /// A line for each store that cannot be tested: its name, and the missing tools.
    pub missing: Vec<String>,
}

impl Available {
    /// An error if a store that was asked for cannot be tested.
    pub fn nothing_is_missing(&self) -> Result<(), Failure> {
        if self.missing.is_empty() {
            return Ok(());
        }
        Err(Failure::new(format!(
            "not every store that was asked for can be tested here\n{}",
            self.missing.join("\n")
        )))
    }
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
            missing.push(format!(
                "{kind}: this machine lacks {}",
                lacks.join(" and ")
            ));
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

/// Whether the environment names an external server. An empty variable names none, as for the
/// launcher.
pub fn is_given(kind: Kind) -> bool {
    let mut variables = kind.url_variables().iter();
    variables.any(|name| std::env::var(name).is_ok_and(|url| is_url(&url)))
}

fn is_url(text: &str) -> bool {
    !text.trim().is_empty()
}

fn list(names: &[&str]) -> String {
    if names.is_empty() {
        "no store with a server".to_owned()
    } else {
        names.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_variable_names_no_server() {
        assert!(is_url("redis://127.0.0.1"));
        assert!(!is_url("") && !is_url(" \n"));
    }
}
