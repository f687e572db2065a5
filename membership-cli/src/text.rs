//! Text for people: ages, durations, counts, tables.

use std::time::Duration;

use membership_core::WallTime;

use crate::out::{Out, Paint};

/// `3 s`, `2 min`, `4 h`, `5 days`: one unit, rounded down.
pub(crate) fn span(d: Duration) -> String {
    let s = d.as_secs();
    match s {
        0 => format!("{} ms", d.as_millis()),
        1..120 => format!("{s} s"),
        120..7_200 => format!("{} min", s / 60),
        7_200..172_800 => format!("{} h", s / 3600),
        _ => format!("{} days", s / 86_400),
    }
}

/// `3 s ago`, or `3 s ahead` of this clock.
pub(crate) fn ago(at: WallTime, now: WallTime) -> String {
    if at > now {
        let ahead = at.since(now);
        // A difference below a second is not worth showing.
        return if ahead < Duration::from_secs(1) {
            "0 s ago".to_owned()
        } else {
            format!("{} ahead", span(ahead))
        };
    }
    let age = now.since(at);
    if age < Duration::from_secs(1) {
        "0 s ago".to_owned()
    } else {
        format!("{} ago", span(age))
    }
}

/// `1 vote`, `2 votes`.
pub(crate) fn count(n: usize, one: &str) -> String {
    if n == 1 {
        format!("1 {one}")
    } else {
        format!("{n} {one}s")
    }
}

/// Text from the table, without characters that control a terminal.
pub(crate) fn clean(text: &str) -> String {
    let controls = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars()
        .map(|c| if controls(c) { '\u{fffd}' } else { c })
        .collect()
}

/// A table with a heading. Columns that are empty in every row are left out.
pub(crate) struct Grid {
    rows: Vec<Vec<(String, Paint)>>,
}

impl Grid {
    pub fn new<const N: usize>(heading: [&str; N]) -> Self {
        Self {
            rows: vec![
                heading
                    .iter()
                    .map(|h| ((*h).to_owned(), Paint::Bold))
                    .collect(),
            ],
        }
    }

    pub fn row<const N: usize>(&mut self, cells: [(String, Paint); N]) {
        self.rows.push(cells.into_iter().collect());
    }

    pub fn show(&self, out: &mut Out) {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |c: usize| {
            self.rows
                .iter()
                .filter_map(|r| r.get(c))
                .map(|(t, _)| t.chars().count())
                .max()
                .unwrap_or(0)
        };
        let used: Vec<(usize, usize)> = (0..columns)
            .filter(|c| {
                self.rows
                    .iter()
                    .skip(1)
                    .any(|r| r.get(*c).is_some_and(|(t, _)| !t.is_empty()))
            })
            .map(|c| (c, width(c)))
            .collect();
        for row in &self.rows {
            let mut line = String::new();
            for (i, (column, width)) in used.iter().enumerate() {
                let Some((text, paint)) = row.get(*column) else {
                    continue;
                };
                let last = i + 1 == used.len();
                let pad = if last {
                    0
                } else {
                    width - text.chars().count() + 2
                };
                line.push_str(&if text.is_empty() {
                    String::new()
                } else {
                    out.paint(*paint, text)
                });
                line.extend(std::iter::repeat_n(' ', pad));
            }
            out.line(line.trim_end());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_one_unit() {
        let now = WallTime::from_millis(1_000_000_000_000);
        for (ms, text) in [
            (0, "0 s ago"),
            (3_400, "3 s ago"),
            (119_000, "119 s ago"),
            (120_000, "2 min ago"),
            (86_400_000, "24 h ago"),
        ] {
            assert_eq!(ago(now.minus(Duration::from_millis(ms)), now), text);
        }
        assert_eq!(ago(now.plus(Duration::from_secs(5)), now), "5 s ahead");
        assert_eq!(ago(now.plus(Duration::from_millis(5)), now), "0 s ago");
        assert_eq!(span(Duration::from_millis(250)), "250 ms");
    }

    #[test]
    fn text_cannot_control_a_terminal() {
        assert_eq!(clean("a\u{1b}[31m\nb"), "a\u{fffd}[31m\u{fffd}b");
    }
}
