//! Tables of figures: as text, as comma-separated values, or as Markdown.

/// A table. Its first column is text; the others are numbers and are right-aligned.
#[derive(Clone, Debug)]
pub struct Figures {
    keys: usize,
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Figures {
    /// A table with these columns, of which the first `keys` identify a row.
    pub fn new(keys: usize, head: &[&str]) -> Self {
        Self {
            keys,
            head: head.iter().map(|cell| (*cell).to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row with one cell for each column.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// How many columns at the left identify a row.
    pub const fn keys(&self) -> usize {
        self.keys
    }

    /// The columns.
    pub fn head(&self) -> &[String] {
        &self.head
    }

    /// The rows.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// The table as aligned text.
    pub fn text(&self) -> String {
        let all = || std::iter::once(&self.head).chain(&self.rows);
        let width = |column: usize| {
            all()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let mut text = String::new();
        for row in all() {
            let cells = row.iter().zip(&widths).enumerate();
            let cells = cells.map(|(i, (cell, width))| {
                if i == 0 {
                    format!("{cell:<width$}")
                } else {
                    format!("{cell:>width$}")
                }
            });
            text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
        }
        text
    }

    /// The table as comma-separated values.
    pub fn csv(&self) -> String {
        let cell = |cell: &String| {
            if cell.contains([',', '"']) {
                format!("\"{}\"", cell.replace('"', "\"\""))
            } else {
                cell.clone()
            }
        };
        let line = |row: &Vec<String>| row.iter().map(cell).collect::<Vec<_>>().join(",") + "\n";
        std::iter::once(&self.head)
            .chain(&self.rows)
            .map(line)
            .collect()
    }

    /// The table as Markdown.
    pub fn markdown(&self) -> String {
        let line = |row: &Vec<String>| format!("| {} |\n", row.join(" | "));
        let rule: String = self
            .head
            .iter()
            .enumerate()
            .map(|(i, _)| if i == 0 { "|---" } else { "|---:" })
            .collect();
        line(&self.head) + &rule + "|\n" + &self.rows.iter().map(line).collect::<String>()
    }
}

/// A number with this many digits, or a dash for a value that does not exist.
pub fn number(value: Option<f64>, digits: usize) -> String {
    value
        .filter(|value| value.is_finite())
        .map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
}

/// A figure of several repetitions: the smallest to the largest value, or the only one.
pub fn spread(values: &[f64], digits: usize) -> String {
    let least = values.iter().copied().min_by(f64::total_cmp);
    let most = values.iter().copied().max_by(f64::total_cmp);
    if values.len() == 1 || least.is_none() {
        return number(most, digits);
    }
    format!("{} to {}", number(least, digits), number(most, digits))
}

/// The `q`-quantile (0 to 1).
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index within the list"
    )]
    let index = ((sorted.len() as f64 * q).ceil() as usize).clamp(1, sorted.len().max(1)) - 1;
    sorted.get(index).copied()
}

/// The mean; none without values.
#[allow(clippy::cast_precision_loss, reason = "counts of samples")]
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The peak memory of this process in MiB; none if the system does not report it.
pub fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_in_three_forms() {
        let mut figures = Figures::new(1, &["what", "s"]);
        figures.row(vec!["a, b".to_owned(), "12.5".to_owned()]);
        assert_eq!(figures.text(), "what     s\na, b  12.5\n");
        assert_eq!(figures.csv(), "what,s\n\"a, b\",12.5\n");
        assert_eq!(
            figures.markdown(),
            "| what | s |\n|---|---:|\n| a, b | 12.5 |\n"
        );
    }

    #[test]
    fn repetitions_show_how_far_they_go() {
        assert_eq!(
            [
                spread(&[2.0], 0),
                spread(&[3.0, 1.0, 2.0], 1),
                spread(&[], 1)
            ],
            ["2", "1.0 to 3.0", "–"]
        );
        assert_eq!(spread(&[1.0, f64::INFINITY], 0), "1 to –");
    }

    #[test]
    fn quantiles_are_values_that_occurred() {
        let values = [5.0, 1.0, 3.0, 2.0, 4.0];
        assert_eq!(quantile(&values, 0.5), Some(3.0));
        assert_eq!(quantile(&values, 0.99), Some(5.0));
        assert_eq!(quantile(&values, 0.0), Some(1.0));
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[1.0, f64::INFINITY], 0.5), Some(1.0));
        assert_eq!(number(quantile(&[1.0, f64::INFINITY], 0.99), 2), "–");
    }
}
