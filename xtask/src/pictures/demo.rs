//! The demo: an SVG whose lines appear at the same times as in a terminal.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::svg::{self, Picture, Run};
use crate::Failure;

/// A line of the demo, and when it was printed.
struct Line {
    at: Duration,
    text: String,
}

/// How long the last line stays before the picture starts again.
const REST: Duration = Duration::from_secs(6);

/// Runs the demo and draws what it prints.
pub(super) fn draw(program: &Path) -> Result<String, Failure> {
    Ok(svg("cargo run --release -- demo", &lines(program)?))
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
    let texts = lines.iter().map(|line| line.text.as_str());
    let longest = texts.chain([prompt.as_str()]).map(|t| t.chars().count());
    let mut picture = Picture::new(longest.max().unwrap_or(0));
    picture.line(&[Run::line(&prompt, svg::QUIET)], "");
    let all = lines.last().map_or(Duration::ZERO, |line| line.at) + REST;
    for line in lines {
        // Invisible until its time, in a loop over the whole run.
        let share = line.at.as_secs_f64() / all.as_secs_f64();
        let animation = format!(
            "<animate attributeName=\"opacity\" dur=\"{:.1}s\" repeatCount=\"indefinite\" \
             calcMode=\"discrete\" keyTimes=\"0;{share:.4}\" values=\"0;1\"/>",
            all.as_secs_f64(),
        );
        picture.line(&[Run::line(&line.text, colour(&line.text))], &animation);
    }
    picture.finish("Five silos start, one is killed, and the others agree on its death")
}

/// The colour of a line, by its meaning.
fn colour(line: &str) -> &'static str {
    if line.contains("killed") || line.contains("Dead") {
        svg::RED
    } else if line.contains("Active") {
        svg::GREEN
    } else {
        svg::PLAIN
    }
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
