//! Prints progress to standard error: a download takes a while, and the test harness must not
//! capture it.

use std::io::{self, Write as _};
use std::sync::{Mutex, PoisonError};

use super::options::How;
use crate::kind::Kind;

/// Prints one line that the test harness does not capture.
pub(super) fn report(line: &str) {
    let _ = writeln!(io::stderr(), "servers: {line}");
}

/// Prints the way in which a server runs, once per program, kind and way.
pub(super) fn report_way(kind: Kind, how: How, more: &str) {
    static REPORTED: Mutex<Vec<(Kind, How)>> = Mutex::new(Vec::new());
    let mut reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    if !reported.contains(&(kind, how)) {
        reported.push((kind, how));
        report(&format!("{kind}: {how}, {more}"));
    }
}
