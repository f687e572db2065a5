//! `measurements` writes the second half of docs/measurements.md by running its experiments.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the output of the command"
)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

/// The line between the hand-written part and the generated part.
const BEGIN: &str = "<!-- written by `cargo run --release -p membership-sim -- measurements --write`; everything below is replaced -->";

/// Each experiment: its title and its command.
const EXPERIMENTS: &[(&str, &str)] = &[
    ("Slow members, as in Lifeguard", "lifeguard"),
    ("The table is gone, or slow", "outage"),
    ("Members stand still", "pause"),
    ("Wrong clocks", "skew"),
    ("The table is wiped, or an old one comes back", "wipe"),
    ("A rolling deploy", "rolling"),
    ("The network splits", "split"),
    ("Links that work in one direction, now and then", "flipflop"),
    ("Links that lose most of what is sent", "loss80"),
    ("Some crash at one moment", "crash"),
    ("Half of them crash at one moment", "mass"),
    ("Everybody loses power", "restart"),
    ("Everybody starts at once", "bootstrap"),
    ("Nothing happens", "steady"),
    ("What one commit costs a large cluster", "dissemination"),
    ("Joining a large cluster", "connectivity"),
    ("Without a store", "storeless"),
];

/// Experiments that run a sample unless they get `--full`.
const SAMPLED: [&str; 2] = ["lifeguard", "bootstrap"];

/// Which experiments to run, and where to write.
#[derive(clap::Args, Clone, Debug)]
pub struct Measurements {
    /// Write docs/measurements.md instead of printing
    #[arg(long)]
    write: bool,
    /// Run only these experiments; the document keeps the sections of the others
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Run small and short, for tests; the result is never written
    #[arg(long, conflicts_with = "write")]
    quick: bool,
    /// Run everything where an experiment otherwise runs a sample
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// Arguments of the experiment, such as `--only crash -- --silos 200`
    #[arg(last = true)]
    arguments: Vec<String>,
}

impl Measurements {
    pub fn run(&self) -> ExitCode {
        match self.all() {
            Ok(missed) => ExitCode::from(u8::from(missed)),
            Err(error) => {
                eprintln!("{error}");
                ExitCode::from(2)
            }
        }
    }

    fn all(&self) -> Result<bool, String> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join("docs")
            .join("measurements.md");
        if let Some(unknown) = self
            .only
            .iter()
            .find(|name| EXPERIMENTS.iter().all(|(_, known)| known != name))
        {
            let known: Vec<&str> = EXPERIMENTS.iter().map(|(_, name)| *name).collect();
            return Err(format!(
                "there is no experiment `{unknown}`; the experiments are {}",
                known.join(", ")
            ));
        }
        let mut missed = false;
        for (title, name) in EXPERIMENTS {
            if !self.only.is_empty() && !self.only.iter().any(|only| only == name) {
                continue;
            }
            let (section, misses) = self.section(title, name)?;
            missed |= misses;
            if self.write {
                // Written at once, so that an interruption later loses nothing.
                put(&path, title, &section)?;
            } else {
                println!("{section}");
            }
        }
        Ok(missed)
    }

    /// Each experiment is a process of its own: the document shows its command, and its memory is
    /// measured separately.
    fn section(&self, title: &str, name: &str) -> Result<(String, bool), String> {
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut arguments = vec![name.to_owned()];
        arguments.extend(self.arguments.iter().cloned());
        if self.quick {
            arguments.push("--quick".to_owned());
        }
        if self.full && SAMPLED.contains(&name) {
            arguments.push("--full".to_owned());
        }
        let began = Instant::now();
        let mut command = Command::new(program);
        command
            .args(&arguments)
            .arg("--markdown")
            .stderr(std::process::Stdio::inherit());
        let output = command.output().map_err(|e| format!("{name}: {e}"))?;
        let code = output.status.code();
        if !matches!(code, Some(0 | 1)) {
            return Err(format!("{name} ended with {}", output.status));
        }
        let mut text = format!("## {title}\n\n");
        let _ = write!(
            text,
            "`cargo run --release -p membership-sim -- {}`",
            arguments.join(" ")
        );
        let _ = write!(text, " (took {:.0} s)\n\n", began.elapsed().as_secs_f64());
        text.push_str(String::from_utf8_lossy(&output.stdout).trim_end());
        text.push('\n');
        Ok((text, code == Some(1)))
    }
}

/// Replaces a section of the document, in the order of the experiments.
fn put(path: &PathBuf, title: &str, section: &str) -> Result<(), String> {
    let at = |e: std::io::Error| format!("{}: {e}", path.display());
    let document = std::fs::read_to_string(path).map_err(at)?;
    std::fs::write(path, with_section(&document, title, section)).map_err(at)
}

fn with_section(document: &str, title: &str, section: &str) -> String {
    let (head, body) = document.split_once(BEGIN).unwrap_or((document, ""));
    let mut sections: Vec<(String, String)> = Vec::new();
    for part in body.split("\n## ").skip(1) {
        let name = part.lines().next().unwrap_or_default().to_owned();
        sections.push((name, format!("## {}\n", part.trim_end())));
    }
    sections.retain(|(name, _)| name != title);
    sections.push((title.to_owned(), section.to_owned()));
    let place = |name: &str| EXPERIMENTS.iter().position(|(title, _)| *title == name);
    sections.retain(|(name, _)| place(name).is_some());
    sections.sort_by_key(|(name, _)| place(name));
    let sections: Vec<String> = sections.into_iter().map(|(_, text)| text).collect();
    format!("{}\n\n{BEGIN}\n\n{}", head.trim_end(), sections.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_replaces_its_predecessor_and_keeps_its_place() {
        let first = with_section(
            "# Head\n\nBy hand.\n",
            "Nothing happens",
            "## Nothing happens\n\nold\n",
        );
        let second = with_section(
            &first,
            "The network splits",
            "## The network splits\n\nhalves\n",
        );
        let third = with_section(&second, "Nothing happens", "## Nothing happens\n\nnew\n");
        assert!(third.starts_with("# Head\n\nBy hand.\n\n<!-- written by"));
        assert!(
            third
                .ends_with("-->\n\n## The network splits\n\nhalves\n\n## Nothing happens\n\nnew\n"),
            "{third}"
        );
    }
}
