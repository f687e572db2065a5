//! At which revision of the store each heartbeat was last written. Clauses T7 and T8.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The revision at which each heartbeat was last written, as far as this client knows.
///
/// A store that can delay a request needs it: a heartbeat whose caller has given up must not arrive
/// after the next one. So each write is conditional on the revision of the last one.
///
/// ```
/// use membership_provider::LastWritten;
///
/// let written = LastWritten::new(10_000);
/// written.learn([("10.0.0.1:7100@1", 7_u64)]);
/// // A read that was answered late.
/// written.learn([("10.0.0.1:7100@1", 5)]);
/// assert_eq!(written.get("10.0.0.1:7100@1"), Some(7));
/// written.forget("10.0.0.1:7100@1");
/// assert_eq!(written.get("10.0.0.1:7100@1"), None);
/// ```
///
/// A revision without an order, such as an ETag, is remembered from what writes and reads after a
/// refusal are answered ([`set`](Self::set)): [`learn`](Self::learn) could not tell the newer one.
///
/// ```
/// use membership_provider::LastWritten;
///
/// let written = LastWritten::new(10_000);
/// written.set("10.0.0.1:7100@1", "\"5d41402a\"".to_owned());
/// assert_eq!(written.get("10.0.0.1:7100@1").as_deref(), Some("\"5d41402a\""));
/// ```
#[derive(Debug)]
pub struct LastWritten<R> {
    revisions: Mutex<HashMap<String, R>>,
    capacity: usize,
}

impl<R: Clone> LastWritten<R> {
    /// For a table of at most so many rows.
    #[must_use]
    pub fn new(rows: usize) -> Self {
        Self {
            revisions: Mutex::default(),
            capacity: rows.saturating_mul(2),
        }
    }

    /// The revision of this heartbeat, if it is known.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<R> {
        self.lock().get(name).cloned()
    }

    /// A write or a fresh read says so.
    pub fn set(&self, name: &str, revision: R) {
        self.lock().insert(name.to_owned(), revision);
    }

    /// The revision is not known any more.
    pub fn forget(&self, name: &str) {
        self.lock().remove(name);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, R>> {
        let mut known = self
            .revisions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Removed silos are dropped this way; the others are looked up again.
        if known.len() > self.capacity {
            known.clear();
        }
        known
    }
}

impl<R: Clone + Ord> LastWritten<R> {
    /// Adds what a read has found. Keeps the newer revision, because a read can be older than what
    /// is known.
    pub fn learn<'a>(&self, found: impl IntoIterator<Item = (&'a str, R)>) {
        let mut known = self.lock();
        for (name, revision) in found {
            match known.get_mut(name) {
                Some(before) if *before >= revision => {}
                Some(before) => *before = revision,
                None => drop(known.insert(name.to_owned(), revision)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_small() {
        let written = LastWritten::new(2);
        for name in ["a", "b", "c", "d", "e"] {
            written.set(name, 1);
        }
        assert_eq!(written.get("a"), None);
        written.set("f", 2);
        assert_eq!(written.get("f"), Some(2));
    }

    #[test]
    fn what_is_learned_late_moves_nothing_back() {
        let written = LastWritten::new(2);
        written.learn([("a", 5)]);
        written.learn([("a", 3), ("b", 1)]);
        assert_eq!((written.get("a"), written.get("b")), (Some(5), Some(1)));
    }
}
