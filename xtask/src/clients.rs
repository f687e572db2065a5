//! `cargo xtask clients`: with one store's feature, the library depends on that store's client and
//! on no other client.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::providers::providers;
use crate::{Failure, say};

/// Checks that each feature of the library pulls in its own store's client and no other's.
#[derive(clap::Args)]
pub struct Clients {}

const LIBRARY: &str = "silo-membership";

/// Features that are not a store in a crate of its own, or that are another form of one.
const NO_STORES: &[&str] = &[
    "default",
    "fuzzing",
    "gossip",
    "http",
    "memory",
    "metrics",
    "mongodb-srv",
    "testing",
];

impl Clients {
    /// Runs `cargo tree` for each feature.
    pub fn run(&self, root: &Path) -> Result<(), Failure> {
        let text = crate::output(
            crate::cargo()
                .args(["metadata", "--locked", "--no-deps", "--format-version", "1"])
                .current_dir(root),
        )?;
        let metadata: Value = serde_json::from_str(&text)?;
        let packages = metadata["packages"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let library = packages.iter().find(|package| package["name"] == LIBRARY);
        let features = library.and_then(|library| library["features"].as_object());
        let features = features
            .ok_or_else(|| Failure::new(format!("there is no package {LIBRARY} with features")))?;
        let mut wrong = Vec::new();
        // The name of an optional dependency is a feature too, unless `dep:` refers to it.
        for feature in features
            .keys()
            .filter(|feature| !NO_STORES.contains(&feature.as_str()))
        {
            let Some((_, provider)) = providers().find(|(_, it)| it.scheme == *feature) else {
                wrong.push(format!(
                    "no Cargo.toml has a [[package.metadata.provider]] with the scheme `{feature}`, a feature of {LIBRARY}"
                ));
                continue;
            };
            let own = &provider.clients;
            let crates = pulled(root, feature)?;
            for client in own.iter().filter(|client| !crates.contains(*client)) {
                wrong.push(format!("the feature `{feature}` pulls no {client}: is it still the client of that store?"));
            }
            wrong.extend(foreign(feature, &crates));
            say(&format!(
                "{feature:<10} {:>4} crates, of the clients only {}",
                crates.len(),
                own.join(", ")
            ));
        }
        let crates = pulled(root, "memory")?;
        wrong.extend(foreign("memory", &crates));
        say(&format!(
            "{:<10} {:>4} crates, no client",
            "memory",
            crates.len()
        ));
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(Failure::new(wrong.join("\nerror: ")))
        }
    }
}

/// Clients of other stores among these crates.
fn foreign(feature: &str, crates: &BTreeSet<String>) -> Vec<String> {
    let others = providers()
        .filter(|(_, it)| it.scheme != feature)
        .flat_map(|(_, it)| it.clients.iter().map(move |client| (&it.scheme, client)));
    others
        .filter(|(_, client)| crates.contains(*client))
        .map(|(other, client)| {
            format!("the feature `{feature}` pulls {client}, the client of `{other}`")
        })
        .collect()
}

/// The names of all crates that the library depends on with this feature alone.
fn pulled(root: &Path, feature: &str) -> Result<BTreeSet<String>, Failure> {
    let mut command = crate::cargo();
    command.args([
        "tree",
        "--locked",
        "--package",
        LIBRARY,
        "--no-default-features",
        "--features",
        feature,
    ]);
    command
        .args(["--edges", "normal", "--prefix", "none", "--format", "{p}"])
        .current_dir(root);
    let text = crate::output(&mut command)?;
    Ok(text
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_client_is_noticed() {
        let crates = ["redis", "tokio", "rusqlite"].map(str::to_owned).into();
        assert_eq!(
            foreign("redis", &crates),
            ["the feature `redis` pulls rusqlite, the client of `sqlite`"]
        );
        assert_eq!(foreign("memory", &crates).len(), 2);
    }
}
