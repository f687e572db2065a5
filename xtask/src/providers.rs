//! What the crate of each provider says of itself in its Cargo.toml, for all commands of this tool.
//!
//! `[[package.metadata.provider]]` describes a scheme, `[[package.metadata.share]]` a share of the
//! tests (`cargo xtask test`). docs/new-provider.md describes the fields.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use serde::Deserialize;

use crate::Failure;

/// A provider: what one scheme leads to.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    /// The scheme, which is also the library's feature.
    pub scheme: String,
    /// The stores that it leads to, by the names of their `ServerBackend`s in reports.
    pub stores: Vec<String>,
    /// The crates that speak with the store: the library pulls them in by this feature alone.
    pub clients: Vec<String>,
    /// Its folder within the crate.
    #[serde(default = "src")]
    #[cfg_attr(not(test), allow(dead_code, reason = "the shape is a test"))]
    pub folder: String,
    /// The files that only this store needs, without their endings.
    #[serde(default)]
    #[cfg_attr(not(test), allow(dead_code, reason = "the shape is a test"))]
    pub files: Vec<String>,
}

/// A share of the tests of a crate. Those of no provider are in `test/shares.rs`, which says what the
/// fields mean.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    pub name: String,
    #[serde(default)]
    pub also: Vec<String>,
    /// The name of its kind of server, if the launcher starts it.
    pub server: Option<String>,
    #[serde(default)]
    pub by_default: bool,
    pub seconds: u64,
    #[serde(default)]
    pub heavy: bool,
    #[serde(default)]
    pub nightly: bool,
    #[serde(default = "one")]
    pub lanes: u64,
}

fn src() -> String {
    "src".to_owned()
}

const fn one() -> u64 {
    1
}

/// A crate with providers.
#[derive(Debug)]
pub struct Manifest {
    /// The name of its folder and of its package.
    pub package: String,
    pub providers: Vec<Provider>,
    pub shares: Vec<Share>,
}

#[derive(Deserialize)]
struct Root {
    package: Package,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    provider: Vec<Provider>,
    #[serde(default)]
    share: Vec<Share>,
}

static ALL: OnceLock<Result<Vec<Manifest>, String>> = OnceLock::new();

fn load() -> &'static Result<Vec<Manifest>, String> {
    ALL.get_or_init(|| of(&crate::root()))
}

/// Whether all of them can be read.
///
/// # Errors
/// The name of a file, and why it cannot be read.
pub fn check() -> Result<(), Failure> {
    load().as_ref().map(drop).map_err(Failure::new)
}

/// All crates with providers, in the order of their names. Empty if [`check`] fails.
pub fn all() -> &'static [Manifest] {
    load().as_ref().map(Vec::as_slice).unwrap_or_default()
}

/// All providers, each with its package.
pub fn providers() -> impl Iterator<Item = (&'static str, &'static Provider)> {
    let of = |it: &'static Manifest| it.providers.iter().map(|one| (it.package.as_str(), one));
    all().iter().flat_map(of)
}

/// The crates with providers in the folders of this workspace.
fn of(root: &Path) -> Result<Vec<Manifest>, String> {
    let mut found = Vec::new();
    let folders = fs::read_dir(root).map_err(|e| format!("{}: {e}", root.display()))?;
    for folder in folders.filter_map(Result::ok) {
        let path = folder.path().join("Cargo.toml");
        // Other folders have none.
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        if !text.contains("[[package.metadata.") {
            continue;
        }
        let read = toml::from_str::<Root>(&text);
        let Root { package } = read.map_err(|e| format!("{}: {e}", path.display()))?;
        found.push(Manifest {
            package: package.name,
            providers: package.metadata.provider,
            shares: package.metadata.share,
        });
    }
    found.sort_by(|a, b| a.package.cmp(&b.package));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(metadata: &str) -> Result<Vec<Manifest>, String> {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("membership-mystore");
        fs::create_dir(&folder).unwrap();
        let text = format!("[package]\nname = \"membership-mystore\"\n{metadata}");
        fs::write(folder.join("Cargo.toml"), text).unwrap();
        of(root.path())
    }

    #[test]
    fn a_field_that_nobody_knows_is_an_error_that_names_the_file() {
        let provider =
            "[[package.metadata.provider]]\nscheme = \"it\"\nstores = []\nclients = []\n";
        let found = manifest(provider).unwrap();
        assert_eq!(found[0].providers[0].folder, "src");
        let error = manifest(&format!("{provider}client = []\n")).unwrap_err();
        assert!(
            error.contains("membership-mystore") && error.contains("`client`"),
            "{error}"
        );
        assert!(manifest("[package.metadata.docs.rs]\n").unwrap().is_empty());
    }

    #[test]
    fn the_crates_of_this_workspace_are_read() {
        check().unwrap();
        let schemes: Vec<_> = providers().map(|(_, it)| it.scheme.as_str()).collect();
        assert!(schemes.len() >= 13, "{schemes:?}");
        assert!(schemes.contains(&"nats") && schemes.contains(&"sqlite"));
    }
}
