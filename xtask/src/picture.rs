//! `cargo xtask picture`: the demo as a picture for the README. An SVG whose lines appear at the
//! same times as in a terminal.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Failure, cargo, say};

/// Runs the demo and draws what it prints, as docs/demo.svg.
#[derive(clap::Args)]
pub struct Picture {
    /// The file to write.
    #[arg(long, default_value = "docs/demo.svg")]
    into: PathBuf,
    /// A program that is built already. [default: builds it]
    #[arg(long)]
    program: Option<PathBuf>,
}

/// A line of the demo, and when it was printed.
struct Line {
    at: Duration,
    text: String,
}

/// Pixels of a character, of a line, and around the text.
const CHARACTER: f64 = 8.43;
const HEIGHT: usize = 20;
const MARGIN: usize = 16;
const TITLE: usize = 28;
/// How long the last line stays before the picture starts again.
const REST: Duration = Duration::from_secs(6);

impl Picture {
    /// Runs the command.
    pub fn run(&self, root: &Path) -> Result<(), Failure> {
        let program = match &self.program {
            Some(program) => program.clone(),
            None => build(root)?,
        };
        let lines = lines(&program)?;
        let path = root.join(&self.into);
        fs::write(&path, svg("cargo run --release -- demo", &lines))?;
        say(&format!("{} is written", path.display()));
        Ok(())
    }
}

fn build(root: &Path) -> Result<PathBuf, Failure> {
    let mut build = Command::new(cargo());
    build.args(["build", "--locked", "--release", "--bin", "membership"]);
    crate::output(build.current_dir(root))?;
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| root.join("target"), PathBuf::from);
    Ok(target.join("release/membership"))
}

/// What the demo prints, with its times.
fn lines(program: &Path) -> Result<Vec<Line>, Failure> {
    let mut demo = Command::new(program)
        .arg("demo")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let began = Instant::now();
    let mut lines = Vec::new();
    if let Some(output) = demo.stdout.take() {
        for text in BufReader::new(output).lines() {
            lines.push(Line {
                at: began.elapsed(),
                text: text?,
            });
        }
    }
    if demo.wait()?.success() {
        Ok(lines)
    } else {
        Err(Failure::new("the demo failed; nothing is drawn"))
    }
}

fn svg(command: &str, lines: &[Line]) -> String {
    let prompt = format!("$ {command}");
    let longest = lines
        .iter()
        .map(|line| line.text.chars().count())
        .chain([prompt.chars().count()])
        .max();
    let columns = u32::try_from(longest.unwrap_or(0)).unwrap_or(u32::MAX);
    let width = 2.0f64.mul_add(16.0, f64::from(columns) * CHARACTER).ceil();
    let height = TITLE + 2 * MARGIN + (lines.len() + 1) * HEIGHT;
    let all = lines.last().map_or(Duration::ZERO, |line| line.at) + REST;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#16191f\"/>\n\
         <circle cx=\"18\" cy=\"16\" r=\"5\" fill=\"#e0605a\"/><circle cx=\"36\" cy=\"16\" r=\"5\" fill=\"#dfae3f\"/>\
         <circle cx=\"54\" cy=\"16\" r=\"5\" fill=\"#5aa85f\"/>\n\
         <g font-family=\"ui-monospace,SFMono-Regular,Menlo,Consolas,monospace\" font-size=\"14\" xml:space=\"preserve\">\n",
        escape("Five silos start, one is killed, and the others agree on its death"),
    );
    let mut y = TITLE + MARGIN + 8;
    let _ = writeln!(
        text,
        "<text x=\"{MARGIN}\" y=\"{y}\" fill=\"#8b93a1\">{}</text>",
        escape(&prompt)
    );
    for line in lines {
        y += HEIGHT;
        if line.text.trim().is_empty() {
            continue;
        }
        // Invisible until its time, in a loop over the whole run.
        let share = line.at.as_secs_f64() / all.as_secs_f64();
        let _ = writeln!(
            text,
            "<text x=\"{MARGIN}\" y=\"{y}\" fill=\"{}\">{}<animate attributeName=\"opacity\" dur=\"{:.1}s\" \
             repeatCount=\"indefinite\" calcMode=\"discrete\" keyTimes=\"0;{share:.4}\" values=\"0;1\"/></text>",
            colour(&line.text),
            escape(&line.text),
            all.as_secs_f64(),
        );
    }
    text.push_str("</g>\n</svg>\n");
    text
}

/// The colour of a line, by its meaning.
fn colour(line: &str) -> &'static str {
    if line.contains("killed") || line.contains("Dead") {
        "#f0857d"
    } else if line.contains("Active") {
        "#86c98b"
    } else {
        "#d8dde6"
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_drawn_at_its_time() {
        let line = |seconds, text: &str| Line {
            at: Duration::from_secs(seconds),
            text: text.to_owned(),
        };
        let lines = [line(1, "a <b>"), line(2, ""), line(2, "killed \"c\"")];
        let picture = svg("demo", &lines);
        assert!(picture.contains("a &lt;b&gt;<animate"), "{picture}");
        assert!(picture.contains("keyTimes=\"0;0.1250\""), "{picture}");
        assert!(
            picture.contains("#f0857d\">killed &quot;c&quot;"),
            "{picture}"
        );
        assert_eq!(picture.matches("<text").count(), 3);
        assert!(picture.contains("height=\"140\""), "{picture}");
    }
}
