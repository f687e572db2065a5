//! Tables as bars.

use std::fmt::Write as _;

use crate::figures::Figures;

const BAR: f64 = 14.0;
const LABEL: f64 = 190.0;
const WIDTH: f64 = 360.0;
/// The colours of columns, told apart by those who see red and green alike.
const COLOURS: [&str; 6] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"];

/// One group of bars for each column with numbers, one bar for each row; each group has a scale of its own.
pub fn bars(caption: &str, figures: &Figures) -> String {
    let mut body = String::new();
    let mut y = 46.0;
    for (column, head) in figures.head().iter().enumerate().skip(1) {
        let values: Vec<(&str, &str, f64)> = figures
            .rows()
            .iter()
            .filter_map(|row| {
                let text = row.get(column)?;
                Some((row.first()?.as_str(), text.as_str(), text.parse().ok()?))
            })
            .collect();
        let most = values.iter().map(|(_, _, value)| *value).fold(0.0, f64::max);
        if most <= 0.0 {
            continue;
        }
        let colour = COLOURS[(column - 1) % COLOURS.len()];
        let _ = writeln!(body, r#"<text x="8" y="{y}" font-weight="bold">{}</text>"#, escaped(head));
        y += 8.0;
        for (name, text, value) in values {
            let (width, base) = (value / most * WIDTH, y + BAR - 3.0);
            let _ = writeln!(body, r#"<text x="{}" y="{base}" text-anchor="end">{}</text>"#, LABEL - 6.0, escaped(name));
            let _ = writeln!(body, r#"<rect x="{LABEL}" y="{y}" width="{width:.1}" height="{}" fill="{colour}"/>"#, BAR - 2.0);
            let _ = writeln!(body, r#"<text x="{:.1}" y="{base}">{}</text>"#, LABEL + width + 4.0, escaped(text));
            y += BAR;
        }
        y += 22.0;
    }
    let all = LABEL + WIDTH + 90.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {all} {y}\" width=\"{all}\" height=\"{y}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"8\" y=\"20\" font-size=\"13\">{}</text>\n{body}</svg>\n",
        escaped(caption)
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_for_each_number() {
        let mut figures = Figures::new(&["who", "seconds", "what"]);
        figures.row(vec!["a<b".to_owned(), "2.0".to_owned(), "–".to_owned()]);
        figures.row(vec!["c".to_owned(), "1.0".to_owned(), "x".to_owned()]);
        let drawn = bars("A & B", &figures);
        assert_eq!(drawn.matches("fill=\"#0072b2\"").count(), 2);
        assert!(drawn.contains("a&lt;b") && drawn.contains("A &amp; B") && !drawn.contains("what"));
    }
}
