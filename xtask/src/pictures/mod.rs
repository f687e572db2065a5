//! `cargo xtask pictures`: the pictures of the README and of `docs/`, each made by the program that
//! it shows.

mod demo;
mod page;
mod svg;
mod top;

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Failure, cargo, say};

/// Makes the pictures of the documents anew: the demo, `top` and the page.
#[derive(clap::Args)]
pub struct Pictures {
    /// The ones to make. [default: all]
    which: Vec<Which>,
    /// The folder to write into.
    #[arg(long, default_value = "docs/pictures")]
    into: PathBuf,
    /// A program that is built already. [default: builds it]
    #[arg(long)]
    program: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Which {
    /// `membership demo`, as an SVG whose lines appear when they were printed.
    Demo,
    /// `membership top` over five silos of which one was killed, as an SVG.
    Top,
    /// The page of the same, in Chromium: wide and narrow, light and dark.
    Page,
}

impl Pictures {
    /// Runs the command.
    pub fn run(&self, root: &Path) -> Result<(), Failure> {
        let all = [Which::Demo, Which::Top, Which::Page];
        let which = match self.which.as_slice() {
            [] => &all,
            some => some,
        };
        let into = root.join(&self.into);
        fs::create_dir_all(&into)?;
        for picture in which {
            match picture {
                Which::Demo => {
                    let drawn = demo::draw(&self.program(root)?)?;
                    fs::write(into.join("demo.svg"), drawn)?;
                }
                Which::Top => {
                    let drawn = top::draw(&self.program(root)?)?;
                    fs::write(into.join("top.svg"), drawn)?;
                }
                Which::Page => page::take(root, &into)?,
            }
        }
        say(&format!("the pictures are in {}", into.display()));
        Ok(())
    }

    /// The program that is shown.
    fn program(&self, root: &Path) -> Result<PathBuf, Failure> {
        if let Some(program) = &self.program {
            return Ok(program.clone());
        }
        let mut build = cargo();
        build.args(["build", "--locked", "--release", "--bin", "membership"]);
        crate::output(build.current_dir(root))?;
        Ok(crate::target(root).join("release/membership"))
    }
}
