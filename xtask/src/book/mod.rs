//! `cargo xtask book`: the documents as pages that can be searched, by mdBook.
//!
//! mdBook is a tool that is installed once, by its version, as cargo-deny is: no build of this
//! workspace and no daily test needs it. What is wrong with the documents themselves is found without
//! it, by `cargo test -p membership-cli --test documents`.

mod check;
mod stage;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Failure, cargo, output, say};

/// The version that is installed.
const MDBOOK: &str = "0.5.4";

/// Builds the documents as a site that can be searched.
#[derive(clap::Args)]
pub struct Book {
    /// The folder to write into. [default: target/book/site]
    #[arg(long)]
    into: Option<PathBuf>,
}

impl Book {
    /// Runs the command.
    pub fn run(&self, root: &Path) -> Result<(), Failure> {
        let home = crate::target(root).join("book");
        let site = self.into.clone().unwrap_or_else(|| home.join("site"));
        let mdbook = mdbook(root)?;
        for folder in [&home.join("src"), &site] {
            if folder.exists() {
                fs::remove_dir_all(folder)?;
            }
        }
        fs::create_dir_all(&home)?;
        fs::write(home.join("book.toml"), include_str!("book.toml"))?;
        fs::write(home.join("book.css"), include_str!("book.css"))?;
        let documents = stage::stage(root, &home.join("src"))?;
        let mut build = Command::new(mdbook);
        build.arg("build").arg(&home).arg("--dest-dir");
        output(build.arg(std::path::absolute(&site)?))?;
        let dead = check::dead_links(&site)?;
        if !dead.is_empty() {
            let text = format!("links of the site lead nowhere:\n{}", dead.join("\n"));
            return Err(Failure::new(text));
        }
        say(&format!(
            "{documents} documents are pages now: {}",
            site.join("index.html").display()
        ));
        Ok(())
    }
}

/// The installed program; installs it if it is missing.
fn mdbook(root: &Path) -> Result<PathBuf, Failure> {
    let tools = crate::target(root).join("tools");
    let program = tools.join("bin/mdbook");
    let version = output(Command::new(&program).arg("--version")).unwrap_or_default();
    if version.contains(MDBOOK) {
        return Ok(program);
    }
    say(&format!(
        "installing mdbook {MDBOOK} into {} (once; some minutes)",
        tools.display()
    ));
    let build = tools.join("build-mdbook");
    let mut install = cargo();
    install
        .args(["install", "--quiet", "--debug", "--locked", "--force"])
        .args(["--version", MDBOOK, "--no-default-features"])
        .args(["--features", "search", "mdbook", "--root"])
        .arg(&tools)
        .env("CARGO_TARGET_DIR", &build)
        .current_dir(root);
    let installed = output(&mut install);
    if build.exists() {
        fs::remove_dir_all(&build)?;
    }
    installed.map(|_| program)
}
