//! How far a measurement has come: one line on a terminal, nothing anywhere else.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The total is known before it begins: every part takes a given time.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// The planned time of the parts that are over.
    before: Duration,
}

impl Progress {
    pub fn new(whole: Duration, terminal: bool) -> Self {
        let target = if terminal {
            ProgressDrawTarget::stderr_with_hz(10)
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(millis(whole)), target);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent:>3} %  {msg}") {
            bar.set_style(style);
        }
        Self {
            bar,
            before: Duration::ZERO,
        }
    }

    /// Names the part under way.
    pub fn label(&self, what: String) {
        self.bar.set_message(what);
    }

    /// Moves the bar: the current part takes this long, and began then.
    pub fn update(&self, began: Instant, takes: Duration) {
        self.bar
            .set_position(millis(self.before + began.elapsed().min(takes)));
    }

    pub fn done(&mut self, takes: Duration) {
        self.before += takes;
        self.bar.set_position(millis(self.before));
    }

    /// Removes the line from the terminal.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}
