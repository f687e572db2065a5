//! The places of this workspace that name each provider: `cargo xtask new-provider NAME --missing`.

use std::fs;
use std::path::Path;

use super::names::Names;

/// A file, what stands there for a provider, and why. `{{name}}` and `{{ident}}` are those of the
/// templates.
const PLACES: &[(&str, &str, &str)] = &[
    (
        "Cargo.toml",
        "membership-{{name}} = {",
        "workspace.dependencies",
    ),
    (
        "membership/Cargo.toml",
        "\"dep:membership-{{name}}\"",
        "the library's feature, never a default one, and the optional dependency",
    ),
    (
        "membership/src/connect/builtin.rs",
        "membership_{{ident}}::provider()",
        "the provider, by its feature",
    ),
    (
        "membership/src/connect/known.rs",
        "provided(\"{{name}}\")",
        "the scheme",
    ),
    (
        "membership/src/connect/mod.rs",
        "`{{name}}://`",
        "a line of the table of schemes",
    ),
    (
        "membership/README.md",
        "`{{name}}://",
        "a line of the table of features",
    ),
    (
        "membership-cli/Cargo.toml",
        "\"silo-membership/{{name}}\"",
        "the program's feature",
    ),
    (
        "membership-cli/Cargo.toml",
        ", \"{{name}}\"",
        "the feature in `full`",
    ),
    (
        "membership-cli/tests/stores/main.rs",
        "\"{{name}}\", ",
        "a line of `tests_over!`, whose module has the name of a share",
    ),
    (
        "membership-cli/tests/table_commands.rs",
        "\"{{name}}\": \"",
        "a URL with a password, at port 1",
    ),
    (
        "xtask/src/clients.rs",
        "(\"{{name}}\", &[",
        "the client's crate in CLIENTS",
    ),
    (
        "xtask/src/status.rs",
        "(\"{{name}}\", &[",
        "the name of the `ServerBackend` in SCHEMES",
    ),
    (
        "xtask/src/shape.rs",
        "membership-{{name}}/src\"",
        "the folder in PROVIDERS",
    ),
    (
        "xtask/src/test/shares.rs",
        "\"membership-{{name}}\"",
        "a share of the tests",
    ),
    (".ci/run", " membership-{{name}} ", "the list of packages"),
    (
        "README.md",
        "(membership-{{name}}/README.md)",
        "the store's line",
    ),
    ("CONTRIBUTING.md", "| `{{name}}` |", "the store's line"),
    (
        "CHANGELOG.md",
        "membership-{{name}}",
        "a line under Unreleased",
    ),
    (
        "docs/providers.md",
        "../membership-{{name}}/README.md",
        "the store's section",
    ),
    ("docs/architecture.md", "`-{{name}}/`", "the crate"),
    (
        "membership-testbed/src/kind.rs",
        "=> \"{{name}}\"",
        "the server as a `Kind`, unless the crate's tests start it: enum, ALL, name, variable",
    ),
    (
        "membership-testbed/src/install/packages.rs",
        "Kind::{{Title}} =>",
        "how the server is installed",
    ),
    (
        "membership-testbed/src/launch/software/mod.rs",
        "mod {{ident}};",
        "how it is started: {{ident}}.rs beside it",
    ),
    (
        "membership-testbed/src/launch/container.rs",
        "Kind::{{Title}} =>",
        "the image of its container",
    ),
];

/// Each place where the provider is not named yet, with what to add.
pub fn missing(root: &Path, names: &Names) -> Vec<String> {
    let mut missing = Vec::new();
    for (file, text, what) in PLACES {
        let there = fs::read_to_string(root.join(file)).unwrap_or_default();
        let (text, what) = (names.fill(text), names.fill(what));
        if !there.contains(&text) {
            missing.push(format!("{file}: `{}`: {what}", text.trim()));
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registered_provider_lacks_nothing_and_a_new_one_everything() {
        let root = crate::root();
        let of = |name| missing(&root, &Names::new(name).unwrap());
        assert_eq!(of("nats"), Vec::<String>::new());
        let of_new = of("mystore");
        assert_eq!(of_new.len(), PLACES.len(), "{of_new:?}");
        assert!(of_new[0].contains("membership-mystore = {"), "{of_new:?}");
    }
}
