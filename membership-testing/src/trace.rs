//! The trace of a run: text for people and a hash for comparisons.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::VirtualTime;

/// How much of a run is kept as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// The last lines about changes: enough to understand a violation.
    Tail(usize),
    /// Every line, for transcripts and replays.
    Everything,
}

/// One line of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The virtual time.
    pub at: VirtualTime,
    /// The name of the process, or `world` for the network, the table and faults.
    pub who: String,
    /// What happened.
    pub what: String,
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:>10.3}s  {:<6} {}",
            self.at.as_secs_f64(),
            self.who,
            self.what
        )
    }
}

/// The trace of one run. Equal seeds give equal hashes.
#[derive(Debug)]
pub struct Trace {
    detail: Detail,
    lines: VecDeque<Line>,
    hash: u64,
}

impl Trace {
    pub(super) fn new(detail: Detail) -> Self {
        Self {
            detail,
            lines: VecDeque::new(),
            hash: 0xcbf2_9ce4_8422_2325,
        }
    }

    pub(super) fn wants_everything(&self) -> bool {
        self.detail == Detail::Everything
    }

    pub(super) fn mix(&mut self, at: Duration, parts: [u64; 3]) {
        let nanos = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        for part in [nanos, parts[0], parts[1], parts[2]] {
            self.hash = (self.hash ^ part)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(23);
        }
    }

    pub(super) fn line(&mut self, at: VirtualTime, who: &str, what: String) {
        if let Detail::Tail(most) = self.detail
            && self.lines.len() >= most
        {
            self.lines.pop_front();
        }
        self.lines.push_back(Line {
            at,
            who: who.to_owned(),
            what,
        });
    }

    pub(super) fn forget(&mut self) {
        self.lines.clear();
    }

    /// A hash over every input that every process handled, in order, with its time and content, and
    /// over every published view.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The lines that were kept, oldest first.
    pub fn lines(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter()
    }

    /// The last lines as text.
    #[must_use]
    pub fn tail(&self, most: usize) -> Vec<String> {
        self.lines
            .iter()
            .skip(self.lines.len().saturating_sub(most))
            .map(ToString::to_string)
            .collect()
    }
}
