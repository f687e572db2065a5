//! What happened, as text for people and as a hash for machines.

use std::collections::VecDeque;
use std::time::Duration;

use super::circumstances::VirtualTime;

/// How much of a run is kept as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// The last lines of what changes something: enough to read a violation.
    Tail(usize),
    /// Every line, for transcripts and replays.
    Everything,
}

/// One line of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// When.
    pub at: VirtualTime,
    /// Who: a process, or `world`.
    pub who: String,
    /// What.
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

/// The trace of one run: equal seeds give equal hashes.
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

    /// Covers every input that every process took, in order, with its time and what it said; and every view that was published.
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
