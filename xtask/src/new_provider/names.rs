//! The name of a new provider: its forms, and whether it is free.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::at;
use crate::{Failure, cargo, output};

/// The file with the schemes of all providers, in the workspace.
pub const KNOWN: &str = "membership/src/connect/builtin.rs";

/// The words of Rust that a name can be.
const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate",
    "do", "dyn", "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl",
    "in", "let", "loop", "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref",
    "return", "self", "static", "struct", "super", "trait", "true", "try", "type", "typeof",
    "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

/// The name in the forms that the templates use.
#[derive(Debug)]
pub struct Names {
    name: String,
    ident: String,
    title: String,
    upper: String,
}

impl Names {
    pub fn new(name: &str) -> Result<Self, Failure> {
        let name = name.strip_prefix("membership-").unwrap_or(name);
        let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let fits = name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(letters);
        if !fits || name.len() > 32 || name.ends_with('-') || name.contains("--") {
            return Err(Failure::new(format!(
                "`{name}` cannot be the scheme of a connection string: use a lower-case letter, then lower-case letters, digits and single \
                 hyphens, at most 32 characters"
            )));
        }
        if name == "membership" {
            return Err(Failure::new(
                "`membership` is the project's own name: choose the name of the store",
            ));
        }
        let capital = |part: &str| part[..1].to_ascii_uppercase() + &part[1..];
        Ok(Self {
            name: name.to_owned(),
            ident: name.replace('-', "_"),
            title: name.split('-').map(capital).collect(),
            upper: name.replace('-', "_").to_ascii_uppercase(),
        })
    }

    /// The name of the crate.
    pub fn package(&self) -> String {
        format!("membership-{}", self.name)
    }

    /// Refuses the name of a package or a scheme that the workspace has.
    pub fn are_free(&self, root: &Path) -> Result<(), Failure> {
        let (name, package) = (&self.name, self.package());
        if packages(root)?.contains(&package) {
            return Err(Failure::new(format!(
                "this workspace has a package {package}: choose another name"
            )));
        }
        let path = root.join(KNOWN);
        let known = fs::read_to_string(&path).map_err(|e| at(&path, &e))?;
        if schemes(&known).any(|scheme| scheme == name) {
            return Err(Failure::new(format!(
                "a provider of this project has the scheme `{name}`: choose another name"
            )));
        }
        Ok(())
    }

    /// Refuses a name that cannot be a module and a type of the launcher.
    pub fn fits_a_module(&self) -> Result<(), Failure> {
        if KEYWORDS.contains(&self.ident.as_str()) {
            return Err(Failure::new(format!(
                "`{}` is a word of Rust, and would name a module of the launcher: leave --launcher out, or choose another name",
                self.name
            )));
        }
        Ok(())
    }

    pub fn fill(&self, template: &str) -> String {
        let also = match self.name == self.ident {
            true => String::new(),
            // Modules of tests have this name.
            false => format!("also = [\"{}\"]\n", self.ident),
        };
        template
            .replace("{{also}}", &also)
            .replace("{{name}}", &self.name)
            .replace("{{ident}}", &self.ident)
            .replace("{{Title}}", &self.title)
            .replace("{{NAME}}", &self.upper)
            .replace("{{port}}", "1234")
    }
}

/// The packages of a workspace.
pub fn packages(root: &Path) -> Result<Vec<String>, Failure> {
    let arguments = ["metadata", "--no-deps", "--format-version", "1"];
    let text = output(cargo().args(arguments).current_dir(root))?;
    let metadata: Value = serde_json::from_str(&text)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let names = packages.filter_map(|package| package["name"].as_str());
    Ok(names.map(str::to_owned).collect())
}

/// The schemes in the text of [`KNOWN`].
fn schemes(known: &str) -> impl Iterator<Item = &str> {
    let lines = known.lines().map(str::trim);
    let lists = lines.filter_map(|line| line.strip_suffix("];")?.rsplit_once(", [\""));
    lists.flat_map(|(_, schemes)| schemes.trim_matches('"').split("\", \""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_schemes_types_and_crates() {
        let names = Names::new("membership-my-store").unwrap();
        assert_eq!(
            names.fill("{{name}} {{ident}} {{Title}} {{NAME}}"),
            "my-store my_store MyStore MY_STORE"
        );
        for name in [
            "",
            "My",
            "9a",
            "a_b",
            "a-",
            "a--b",
            "ä",
            &"a".repeat(33),
            "membership",
        ] {
            assert!(Names::new(name).is_err(), "{name}");
        }
    }

    #[test]
    fn the_schemes_of_the_project_are_found() {
        let known = fs::read_to_string(crate::root().join(KNOWN)).unwrap();
        let schemes: Vec<&str> = schemes(&known).collect();
        for scheme in ["memory", "postgresql", "redis+cluster", "azure-table", "zk"] {
            assert!(schemes.contains(&scheme), "{scheme}: {schemes:?}");
        }
        let stores = known
            .lines()
            .filter(|line| line.starts_with("    \""))
            .count();
        assert!(schemes.len() > stores && stores > 12, "{schemes:?}");
    }
}
