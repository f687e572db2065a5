//! The targets, by what they read.

mod certificates;
mod connection;
mod rows;
mod text;

use std::hash::{DefaultHasher, Hash, Hasher};

/// One reader of bytes.
#[derive(Debug)]
pub struct Target {
    /// How commands and folders name it.
    pub name: &'static str,
    /// What it reads.
    pub about: &'static str,
    /// Valid inputs, from which others are made.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Pieces that inputs are made of.
    pub words: &'static [&'static str],
    /// The longest input that makes sense, in bytes.
    pub longest: usize,
    /// Reads an input. Panics if a rule is broken.
    pub read: fn(&[u8]) -> Outcome,
}

/// What became of an input: inputs with an outcome that was not seen before are kept to make others
/// from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Outcome(u64);

impl Outcome {
    /// The outcome of a text, for example an error, without its numbers and quotations.
    fn of(kind: &str, text: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        kind.hash(&mut hasher);
        let mut quoted = false;
        for c in text.chars().take(40) {
            match c {
                '`' | '"' | '\'' => quoted = !quoted,
                c if !quoted && (c.is_ascii_alphabetic() || c == ' ') => c.hash(&mut hasher),
                _ => {}
            }
        }
        Self(hasher.finish())
    }

    /// An outcome with a number of its own, of which only the magnitude counts.
    fn sized(kind: &str, size: usize) -> Self {
        let mut hasher = DefaultHasher::new();
        (kind, size.checked_ilog2()).hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// Every target.
pub const TARGETS: &[Target] = &[
    connection::HELLO,
    certificates::CERTIFICATES,
    connection::FRAMES,
    connection::MESSAGE,
    connection::TERSE,
    connection::DELTA,
    rows::ROW,
    rows::VERSION_ROW,
    text::HEARTBEAT,
    text::NAMES,
    text::URL,
    text::CONFIG,
    text::SECRET,
    certificates::PEM,
];

/// The target of that name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Checks what every error must be: one line that fits into a log.
fn check_line(text: &str) {
    assert!(
        text.len() < 4096 && !text.chars().any(char::is_control),
        "an error of {} bytes, or with control characters: {:?}",
        text.len(),
        text.chars().take(300).collect::<String>()
    );
}
