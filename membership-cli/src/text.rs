//! Text for people: ages, durations, counts, tables.

use std::net::SocketAddr;

pub(crate) use membership::words::{ago, count, misleads, span};

use membership_core::TableError;

use crate::out::{Out, Paint};

/// Text from the table, without characters that control a terminal.
pub(crate) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| if misleads(c) { '\u{fffd}' } else { c })
        .collect()
}

/// A name from the table, for a column of many rows: a longer one would take the room of all others.
pub(crate) fn named(text: &str) -> String {
    shortened(&clean(text), LONGEST_NAME)
}

/// Longer than the names of hosts and zones usually are.
const LONGEST_NAME: usize = 40;

/// An address of the command line.
pub(crate) fn ip_and_port(text: &str) -> Result<SocketAddr, String> {
    text.parse::<SocketAddr>().map_err(|_| {
        "write an IP address and a port, for example 127.0.0.1:7100; names are not resolved"
            .to_owned()
    })
}

/// What happened and to whom, without what a caller of the table does about it.
pub(crate) fn reason(error: &TableError) -> String {
    let place = error
        .place()
        .map_or_else(String::new, |at| format!(" at {at}"));
    let operation = error.operation().as_str();
    format!("{} ({} {operation}{place})", error.message(), error.store())
}

/// A table with a heading. Columns that are empty in every row are left out, and so are expendable
/// ones on a terminal that is too narrow.
pub(crate) struct Grid {
    rows: Vec<Vec<(String, Paint)>>,
    expendable: &'static [&'static str],
}

/// Between two columns.
const GAP: usize = 2;

impl Grid {
    pub fn new<const N: usize>(heading: [&str; N]) -> Self {
        Self {
            rows: vec![
                heading
                    .iter()
                    .map(|h| ((*h).to_owned(), Paint::Bold))
                    .collect(),
            ],
            expendable: &[],
        }
    }

    /// The columns that a narrow terminal does without, in this order.
    pub const fn expendable(mut self, columns: &'static [&'static str]) -> Self {
        self.expendable = columns;
        self
    }

    pub fn row<const N: usize>(&mut self, cells: [(String, Paint); N]) {
        self.rows.push(cells.into_iter().collect());
    }

    pub fn show(&self, out: &mut Out) {
        for line in self.lines(out.size().map(|(columns, _)| columns), out) {
            out.line(line);
        }
    }

    /// The columns that are shown, each with its width.
    fn columns(&self, most: Option<usize>) -> Vec<(usize, usize)> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cells = |c: usize| self.rows.iter().filter_map(move |r| r.get(c));
        let width = |c: usize| cells(c).map(|(t, _)| t.chars().count()).max().unwrap_or(0);
        let is_used = |c: &usize| cells(*c).skip(1).any(|(t, _)| !t.is_empty());
        let mut used: Vec<(usize, usize)> = (0..columns)
            .filter(is_used)
            .map(|c| (c, width(c)))
            .collect();
        let whole = |used: &[(usize, usize)]| {
            let gaps = GAP * used.len().saturating_sub(1);
            used.iter().map(|(_, width)| width).sum::<usize>() + gaps
        };
        let heading = |c: usize| self.rows[0].get(c).map_or("", |(t, _)| t.as_str());
        for name in self.expendable {
            if most.is_none_or(|most| whole(&used) <= most) {
                break;
            }
            used.retain(|(c, _)| heading(*c) != *name);
        }
        used
    }

    fn lines(&self, most: Option<usize>, out: &Out) -> Vec<String> {
        let used = self.columns(most);
        let line = |row: &Vec<(String, Paint)>| {
            let (mut line, mut at) = (String::new(), 0);
            for (i, (column, width)) in used.iter().enumerate() {
                let Some((text, paint)) = row.get(*column) else {
                    continue;
                };
                let room = most.map_or(usize::MAX, |most| most.saturating_sub(at));
                let text = shortened(text, room);
                let is_last = i + 1 == used.len();
                let length = text.chars().count();
                if !text.is_empty() {
                    line.push_str(&out.paint(*paint, text));
                }
                let pad = if is_last {
                    0
                } else {
                    width + GAP - length.min(*width)
                };
                line.extend(std::iter::repeat_n(' ', pad));
                at += length + pad;
            }
            line.trim_end().to_owned()
        };
        self.rows.iter().map(line).collect()
    }
}

/// The text, or its beginning and `…` where there is no room for more.
fn shortened(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(room.saturating_sub(1)).collect();
    if room > 0 {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_terminal_gets_fewer_columns_and_no_longer_lines() {
        let mut grid = Grid::new(["SILO", "NAME", "ZONE", "END"]).expendable(&["ZONE", "NAME"]);
        let cells = |texts: [&str; 4]| texts.map(|t| (t.to_owned(), Paint::Plain));
        grid.row(cells(["10.0.0.1:1@1", "silo-1", "zone-1", "voted 3 s ago"]));
        grid.row(cells(["10.0.0.1:2@1", "silo-2", "zone-1", ""]));
        let out = Out::plain(Box::new(Vec::new()));
        let widest = |most| {
            let lines = grid.lines(most, &out);
            let widths = lines.iter().map(|l| l.chars().count());
            (lines[1].clone(), widths.max().unwrap())
        };
        assert_eq!(widest(None).1, 43);
        assert_eq!(
            widest(Some(43)).0,
            "10.0.0.1:1@1  silo-1  zone-1  voted 3 s ago"
        );
        assert_eq!(widest(Some(42)).0, "10.0.0.1:1@1  silo-1  voted 3 s ago");
        assert_eq!(widest(Some(30)).0, "10.0.0.1:1@1  voted 3 s ago");
        assert_eq!(widest(Some(20)).0, "10.0.0.1:1@1  voted…");
        for most in 1..60 {
            assert!(widest(Some(most)).1 <= most, "{most}");
        }
    }

    #[test]
    fn text_cannot_control_a_terminal() {
        assert_eq!(clean("a\u{1b}[31m\nb"), "a\u{fffd}[31m\u{fffd}b");
    }
}
