//! Tables of figures: for people, or as comma-separated values.

#![allow(clippy::print_stdout, reason = "what the commands answer")]

/// A table that is printed when it is complete.
#[derive(Debug)]
pub struct Figures {
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Figures {
    /// One with these columns.
    pub fn new(head: &[&'static str]) -> Self {
        Self { head: head.to_vec(), rows: Vec::new() }
    }

    /// A row; one cell for each column.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Prints it. The first column is text, the others are numbers and stand to the right.
    pub fn print(&self, csv: bool) {
        let head: Vec<String> = self.head.iter().map(|cell| (*cell).to_owned()).collect();
        let all = || std::iter::once(&head).chain(&self.rows);
        if csv {
            for row in all() {
                println!("{}", row.join(","));
            }
            return;
        }
        let width = |column: usize| all().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        for row in all() {
            let cells = row.iter().zip(&widths).enumerate();
            let cells = cells.map(|(i, (cell, width))| if i == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") });
            println!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
        }
    }
}

/// The most memory that this process ever had, in MiB; none where the system does not say.
pub fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib / 1024)
}
