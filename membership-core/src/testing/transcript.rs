//! A run as text, to be read and reviewed: golden transcripts.

use std::fmt::Write as _;
use std::path::Path;

use super::Cluster;

/// The environment variable that makes [`compare`] rewrite what it compares with.
pub const BLESS: &str = "MEMBERSHIP_BLESS";

/// The transcript of a run under a title: time, silo and event, one line each. Build the cluster with
/// [`Detail::Everything`](super::Detail::Everything); probes, heartbeats and reads are left out, and lines that several silos have in
/// common stay apart, because their times do.
#[must_use]
pub fn render(title: &str, cluster: &Cluster) -> String {
    let mut text = format!("# {title}\n\n");
    for line in cluster.trace().lines() {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// Compares a transcript with the file that was reviewed; with `MEMBERSHIP_BLESS=1` in the environment, writes the file instead.
///
/// # Errors
/// The first line that differs, or why the file cannot be read or written.
pub fn compare(path: impl AsRef<Path>, transcript: &str) -> Result<(), String> {
    let path = path.as_ref();
    if std::env::var_os(BLESS).is_some_and(|v| v == "1") {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        }
        return std::fs::write(path, transcript).map_err(|e| format!("{}: {e}", path.display()));
    }
    let expected = std::fs::read_to_string(path).map_err(|e| format!("{}: {e} (write it with {BLESS}=1)", path.display()))?;
    let (mut ours, mut theirs) = (transcript.lines(), expected.lines());
    for number in 1.. {
        match (ours.next(), theirs.next()) {
            (None, None) => break,
            (a, b) if a == b => {}
            (a, b) => {
                return Err(format!(
                    "{} differs in line {number}:\n  was {}\n  is  {}\nreview it, and accept it with {BLESS}=1",
                    path.display(),
                    b.unwrap_or("(the end)"),
                    a.unwrap_or("(the end)"),
                ));
            }
        }
    }
    Ok(())
}
