//! Golden transcripts: a run as text, to be reviewed and compared.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use crate::{Cluster, Line};

/// The environment variable that makes [`compare`] overwrite the file.
pub const BLESS: &str = "MEMBERSHIP_BLESS";

/// Renders a run as a transcript with a title: time, silo and event per line. Build the cluster
/// with [`Detail::Everything`](crate::Detail::Everything). Probes, heartbeats and reads are left
/// out. A message that one silo sends to several silos at the same time is one line. Repeated
/// messages appear once; the last line counts the repetitions.
#[must_use]
pub fn render(title: &str, cluster: &Cluster) -> String {
    let mut text = format!("# {title}\n\n");
    let mut seen: BTreeSet<(String, String)> = BTreeSet::new();
    let mut again = 0_u64;
    for line in merged(cluster.trace().lines()) {
        let repeats = line.what.starts_with("sends ") || line.what.starts_with("misses ");
        if repeats && !seen.insert((line.who.clone(), line.what.clone())) {
            again += 1;
        } else {
            let _ = writeln!(text, "{line}");
        }
    }
    if again > 0 {
        let _ = writeln!(
            text,
            "\n{again} more messages and misses like ones above are not shown."
        );
    }
    text
}

/// Merges lines about the same message from one silo to several silos at one time.
fn merged<'a>(lines: impl Iterator<Item = &'a Line>) -> Vec<Line> {
    let mut all: Vec<Line> = Vec::new();
    for line in lines {
        if let (Some(last), Some((what, to))) = (all.last_mut(), line.what.rsplit_once(" to "))
            && what.starts_with("sends ")
            && last.at == line.at
            && last.who == line.who
            && last
                .what
                .rsplit_once(" to ")
                .is_some_and(|(w, _)| w == what)
        {
            let _ = write!(last.what, ", {}", to.trim_start_matches("address of "));
            continue;
        }
        all.push(line.clone());
    }
    all
}

/// Compares a transcript with its reviewed file. With `MEMBERSHIP_BLESS=1` in the environment it
/// writes the file instead.
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
    let expected = std::fs::read_to_string(path)
        .map_err(|e| format!("{}: {e} (write it with {BLESS}=1)", path.display()))?;
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
