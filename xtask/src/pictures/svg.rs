//! A terminal as an SVG: a dark window with lines of text in it.

use std::fmt::Write as _;

/// Pixels of a character, of a line, and around the text.
const CHARACTER: f64 = 8.43;
const HEIGHT: usize = 20;
const MARGIN: usize = 16;
const TITLE: usize = 28;

pub(super) const PLAIN: &str = "#d8dde6";
pub(super) const QUIET: &str = "#8b93a1";
pub(super) const RED: &str = "#f0857d";
pub(super) const GREEN: &str = "#86c98b";
pub(super) const YELLOW: &str = "#e5c07b";
pub(super) const CYAN: &str = "#7fc8d6";
const BEHIND: &str = "#16191f";

/// Text of one look within a line.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// Where it begins, in characters.
    pub column: usize,
    pub text: String,
    pub colour: &'static str,
    pub bold: bool,
    /// Dark text on a bright ground.
    pub reversed: bool,
}

impl Run {
    pub fn line(text: &str, colour: &'static str) -> Self {
        Self {
            column: 0,
            text: text.to_owned(),
            colour,
            bold: false,
            reversed: false,
        }
    }
}

/// A picture that grows by lines. Newer browsers keep spaces for `white-space` alone, other programs
/// for `xml:space` alone.
pub(super) struct Picture {
    columns: usize,
    lines: usize,
    body: String,
}

impl Picture {
    pub const fn new(columns: usize) -> Self {
        Self {
            columns,
            lines: 0,
            body: String::new(),
        }
    }

    /// Adds a line; `animation` is inside each of its texts.
    pub fn line(&mut self, runs: &[Run], animation: &str) {
        let y = TITLE + MARGIN + 8 + self.lines * HEIGHT;
        self.lines += 1;
        for run in runs
            .iter()
            .filter(|r| r.reversed || !r.text.trim().is_empty())
        {
            let x = (run.column as f64).mul_add(CHARACTER, MARGIN as f64);
            let length = run.text.chars().count() as f64 * CHARACTER;
            let mut colour = run.colour;
            if run.reversed {
                let top = y - 15;
                let _ = writeln!(
                    self.body,
                    "<rect x=\"{x:.1}\" y=\"{top}\" width=\"{length:.1}\" height=\"{HEIGHT}\" fill=\"{colour}\"/>"
                );
                colour = BEHIND;
            }
            let bold = if run.bold {
                " font-weight=\"bold\""
            } else {
                ""
            };
            let _ = writeln!(
                self.body,
                "<text x=\"{x:.1}\" y=\"{y}\" fill=\"{colour}\"{bold}>{}{animation}</text>",
                escape(run.text.trim_end())
            );
        }
    }

    /// The picture; `label` says what it shows to whoever does not see it.
    pub fn finish(self, label: &str) -> String {
        let width = (self.columns as f64)
            .mul_add(CHARACTER, 2.0 * MARGIN as f64)
            .ceil();
        let height = TITLE + 2 * MARGIN + self.lines * HEIGHT;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">\n\
             <style>text {{ white-space: pre }}</style>\n\
             <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{BEHIND}\"/>\n\
             <circle cx=\"18\" cy=\"16\" r=\"5\" fill=\"#e0605a\"/><circle cx=\"36\" cy=\"16\" r=\"5\" fill=\"#dfae3f\"/>\
             <circle cx=\"54\" cy=\"16\" r=\"5\" fill=\"#5aa85f\"/>\n\
             <g font-family=\"ui-monospace,SFMono-Regular,Menlo,Consolas,\
             DejaVu Sans Mono,monospace\" font-size=\"14\" xml:space=\"preserve\">\n\
             {}</g>\n</svg>\n",
            escape(label),
            self.body
        )
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
    fn text_is_escaped_and_reversed_text_has_a_ground() {
        let mut picture = Picture::new(10);
        picture.line(&[Run::line("a <b>", PLAIN), Run::line("   ", RED)], "<x/>");
        let reversed = Run {
            column: 2,
            reversed: true,
            ..Run::line("c", RED)
        };
        picture.line(&[reversed], "");
        let drawn = picture.finish("two \"lines\"");
        assert!(drawn.contains(">a &lt;b&gt;<x/></text>"), "{drawn}");
        assert!(drawn.contains("aria-label=\"two &quot;lines&quot;\""));
        assert_eq!(drawn.matches("<text").count(), 2, "{drawn}");
        assert!(drawn.contains("<rect x=\"32.9\""), "{drawn}");
        assert!(drawn.contains("height=\"100\""), "{drawn}");
    }
}
