//! Counts what a thread logs as warnings.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tracing::dispatcher::{DefaultGuard, Dispatch, set_default};
use tracing::field::Field;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// How many warnings this thread has logged that contain a text, while this exists.
pub struct Warnings {
    found: Arc<AtomicUsize>,
    /// With a single subscriber, a call site that another thread reaches first would be disabled.
    _second: Dispatch,
    _default: DefaultGuard,
}

impl Warnings {
    pub fn with(text: &'static str) -> Self {
        let found = Arc::new(AtomicUsize::new(0));
        let dispatch = || Dispatch::new(Counts(text, Arc::clone(&found)));
        let (second, first) = (dispatch(), dispatch());
        Self {
            _default: set_default(&first),
            _second: second,
            found,
        }
    }

    pub fn count(&self) -> usize {
        self.found.load(Ordering::SeqCst)
    }
}

struct Counts(&'static str, Arc<AtomicUsize>);

impl Subscriber for Counts {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut all = String::new();
        event.record(&mut |field: &Field, value: &dyn Debug| {
            all += &format!("{field}={value:?} ");
        });
        if all.contains(self.0) {
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
