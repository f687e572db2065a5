//! The waits of the writer after a conflict or an error.

use std::time::Duration;

use super::super::context::Ctx;
use crate::{MonoTime, SiloStatus};

const CONFLICT_BACKOFF: Duration = Duration::from_millis(40);
const CONFLICT_CAP_URGENT: Duration = Duration::from_secs(2);
pub(super) const CONFLICT_CAP: Duration = Duration::from_secs(4);
/// Time in conflicts after which the waits shrink to the minimum. Otherwise the silo that has just
/// committed, and starts again with short waits, wins again and again, and one of 32 writers can
/// wait for a minute.
const CONFLICT_PATIENCE: Duration = Duration::from_secs(5);
/// Up to this number of silos, the waits then shrink to zero. A silo that commits without a pause
/// leaves the version row unchanged for a round trip at a time. A silo that waits before each
/// attempt, however briefly, seldom meets that moment and can lose for ever.
const CONFLICT_CROWD: u32 = 32;
/// Time in conflicts after which the cause is not contention: another program writes all the time,
/// or the commit does not fit the rows. The waits grow again from one step of the back-off, and
/// double after each [`CONFLICT_FRUITLESS_STEP`].
const CONFLICT_FRUITLESS: Duration = Duration::from_secs(30);
const CONFLICT_FRUITLESS_STEP: u64 = 10;
const CONFLICT_FRUITLESS_CAP: Duration = Duration::from_secs(1);
/// Time without a conflict after which the next one counts as the first.
const CONFLICT_OVER: Duration = Duration::from_secs(30);
const ERROR_BACKOFF: Duration = Duration::from_secs(1);
const ERROR_CAP: Duration = Duration::from_secs(60);

/// Maximum wait of a writer after this many conflicts in a row, including the last; the wait is
/// chosen uniformly below it.
///
/// It doubles with each conflict and shrinks with `waited`, the time since the first of them, so
/// that every writer gets a turn. `silos` is the number of rows in the table, and so of possible
/// writers; up to 32 it shrinks to zero. After half a minute it grows again, up to a second.
/// `urgent` commits end a silo: deaths, votes, leaving. Benchmarks and tests use this function to
/// write as silos do.
#[must_use]
pub fn conflict_backoff(conflicts: u32, waited: Duration, silos: usize, urgent: bool) -> Duration {
    let cap = if urgent {
        CONFLICT_CAP_URGENT
    } else {
        CONFLICT_CAP
    };
    // Ten doublings are beyond both caps.
    let doubled = (CONFLICT_BACKOFF * 2u32.pow(conflicts.clamp(1, 11) - 1)).min(cap);
    let crowd = u32::try_from(silos)
        .unwrap_or(u32::MAX)
        .div_ceil(CONFLICT_CROWD)
        .max(1);
    let fruitless = match waited.checked_sub(CONFLICT_FRUITLESS) {
        // Five doublings are beyond the cap.
        Some(over) => (CONFLICT_BACKOFF
            * 2u32.pow((over.as_secs() / CONFLICT_FRUITLESS_STEP).min(5) as u32))
        .min(CONFLICT_FRUITLESS_CAP),
        None => Duration::ZERO,
    };
    let least = CONFLICT_BACKOFF.saturating_mul(crowd - 1).max(fruitless);
    doubled.min((CONFLICT_PATIENCE.saturating_sub(waited) / 4).max(least))
}

/// Counts conflicts in a row.
#[derive(Debug, Default)]
pub(super) struct Conflicts {
    count: u32,
    since: MonoTime,
    last: MonoTime,
}

impl Conflicts {
    /// Resets the count: a commit succeeded.
    pub(super) fn clear(&mut self) {
        self.count = 0;
    }

    /// Whether the last attempt to commit met a conflict.
    pub(super) const fn are_recent(&self) -> bool {
        self.count > 0
    }

    /// Counts one more conflict and returns the wait.
    pub(super) fn wait(&mut self, ctx: &mut Ctx, silos: usize, urgent: bool) -> Duration {
        let now = ctx.mono();
        if self.count == 0 || now.since(self.last) > CONFLICT_OVER {
            (self.count, self.since) = (0, now);
        }
        self.last = now;
        self.count = (self.count + 1).min(10);
        match ctx.variant.backoff(self.count) {
            Some((least, most)) => least + ctx.jitter(most.saturating_sub(least)),
            None => {
                let waited = now.since(self.since);
                ctx.jitter(conflict_backoff(self.count, waited, silos, urgent))
            }
        }
    }
}

/// The wait after this many errors in a row.
pub(super) fn error_wait(ctx: &mut Ctx, errors: u32) -> Duration {
    // Leaving and joining silos do not wait for a minute; no silo waits longer than a refresh
    // period.
    let cap = if ctx.status == SiloStatus::Active {
        ERROR_CAP.min(ctx.config.table_refresh_period)
    } else {
        ERROR_BACKOFF * 2
    };
    let most = (ERROR_BACKOFF * 2u32.pow(errors.clamp(1, 10) - 1)).min(cap.max(ERROR_BACKOFF));
    most / 2 + ctx.jitter(most / 2)
}
