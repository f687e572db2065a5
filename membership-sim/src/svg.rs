//! Draws tables as bar charts.

use std::fmt::Write as _;

use crate::figures::Figures;

const BAR: f64 = 14.0;
const WIDTH: f64 = 360.0;
/// The width of a letter of a label, that of a letter of a caption, and the space beside the
/// longest bar.
const LETTER: f64 = 6.2;
const LARGE_LETTER: f64 = 7.2;
const BESIDE: f64 = 110.0;
/// The colours of columns, distinguishable with red-green colour blindness.
const COLOURS: [&str; 6] = [
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00",
];

/// The value of a bar: a number, or a range of several repetitions.
struct Value<'a> {
    label: String,
    text: &'a str,
    least: f64,
    most: f64,
}

impl<'a> Value<'a> {
    /// None for a dash or a word.
    fn parse(label: String, text: &'a str) -> Option<Self> {
        let (least, most) = text.split_once(" to ").unwrap_or((text, text));
        let (least, most) = (least.parse().ok()?, most.parse().ok()?);
        Some(Self {
            label,
            text,
            least,
            most,
        })
    }
}

/// Draws all tables, one below the other. A table has one group of bars for each numeric column
/// that is no key, and a group has one bar for each row, labelled with its keys. Each group has its
/// own scale.
pub fn bars(tables: &[(String, Figures)]) -> String {
    let labels = tables
        .iter()
        .flat_map(|(_, figures)| figures.rows().iter().map(|row| label(figures, row)));
    let (left, captions) = (
        longest(labels) * LETTER + 20.0,
        longest(tables.iter().map(|(caption, _)| caption.clone())),
    );
    let (mut body, mut y) = (String::new(), 0.0);
    for (caption, figures) in tables {
        let _ = writeln!(
            body,
            r#"<text x="8" y="{}" font-size="13">{}</text>"#,
            y + 20.0,
            escaped(caption)
        );
        y += 46.0;
        table(figures, left, &mut body, &mut y);
    }
    let all = (left + WIDTH + BESIDE).max(captions * LARGE_LETTER + 16.0);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {all:.0} {y}\" width=\"{all:.0}\" height=\"{y}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
    )
}

#[allow(clippy::cast_precision_loss, reason = "the length of a line")]
fn longest(texts: impl Iterator<Item = String>) -> f64 {
    texts.map(|text| text.chars().count()).max().unwrap_or(0) as f64
}

fn table(figures: &Figures, left: f64, body: &mut String, y: &mut f64) {
    for (column, head) in figures.head().iter().enumerate().skip(figures.keys()) {
        let cell = |row: &Vec<String>| label(figures, row);
        let values = figures
            .rows()
            .iter()
            .filter_map(|row| Value::parse(cell(row), row.get(column)?));
        let values: Vec<Value<'_>> = values.collect();
        let most = values.iter().map(|value| value.most).fold(0.0, f64::max);
        if most <= 0.0 {
            continue;
        }
        let colour = COLOURS[(column - figures.keys()) % COLOURS.len()];
        let _ = writeln!(
            body,
            r#"<text x="8" y="{y}" font-weight="bold">{}</text>"#,
            escaped(head)
        );
        *y += 8.0;
        for value in values {
            let (least, width, base) = (
                value.least / most * WIDTH,
                value.most / most * WIDTH,
                *y + BAR - 3.0,
            );
            let height = BAR - 2.0;
            let _ = writeln!(
                body,
                r#"<text x="{:.1}" y="{base}" text-anchor="end">{}</text>"#,
                left - 6.0,
                escaped(&value.label)
            );
            if width > least {
                let _ = writeln!(
                    body,
                    r#"<rect x="{left:.1}" y="{y}" width="{width:.1}" height="{height}" fill="{colour}" opacity="0.4"/>"#
                );
            }
            let _ = writeln!(
                body,
                r#"<rect x="{left:.1}" y="{y}" width="{least:.1}" height="{height}" fill="{colour}"/>"#
            );
            let _ = writeln!(
                body,
                r#"<text x="{:.1}" y="{base}">{}</text>"#,
                left + width + 4.0,
                escaped(value.text)
            );
            *y += BAR;
        }
        *y += 22.0;
    }
}

/// The label of a row: its keys.
fn label(figures: &Figures, row: &[String]) -> String {
    let keys: Vec<&str> = row
        .iter()
        .take(figures.keys())
        .map(String::as_str)
        .filter(|key| *key != "–")
        .collect();
    keys.join(" · ")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_for_each_number_of_every_table() {
        let mut first = Figures::new(2, &["who", "seed", "seconds", "what"]);
        first.row(["a<b", "1", "2.0", "–"].map(str::to_owned).to_vec());
        first.row(["a<b", "2", "1.0", "x"].map(str::to_owned).to_vec());
        let mut second = Figures::new(1, &["who", "deaths"]);
        second.row(["c", "3 to 4"].map(str::to_owned).to_vec());
        let drawn = bars(&[("A & B".to_owned(), first), ("C".to_owned(), second)]);
        assert_eq!(drawn.matches("<rect x=").count(), 2 + 2, "{drawn}");
        assert_eq!(drawn.matches("opacity").count(), 1, "{drawn}");
        for text in [
            "A &amp; B",
            ">C<",
            "a&lt;b · 1",
            "a&lt;b · 2",
            ">c<",
            "3 to 4",
        ] {
            assert!(drawn.contains(text), "{text}: {drawn}");
        }
        assert!(
            !drawn.contains("what") && !drawn.contains(">seed<"),
            "{drawn}"
        );
    }
}
