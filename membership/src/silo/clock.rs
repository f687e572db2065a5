//! Both clocks of this process. Every silo of one process tells monotonic time from the same origin.

use std::sync::OnceLock;
use std::time::{Duration, Instant as StdInstant, SystemTime, UNIX_EPOCH};

use membership_core::{MonoTime, Now, WallTime};
use tokio::time::Instant;

static ORIGIN: OnceLock<Instant> = OnceLock::new();

/// The process's clocks. tokio's monotonic clock is the system's; in a test with a paused clock it is tokio's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { origin: *ORIGIN.get_or_init(Instant::now) }
    }

    pub(crate) fn mono(&self) -> MonoTime {
        self.at(Instant::now())
    }

    pub(crate) fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { mono: self.mono(), wall: WallTime::from_millis(u64::try_from(wall.as_millis()).unwrap_or(u64::MAX)) }
    }

    /// When tokio's clock shows `time`.
    pub(crate) fn instant(&self, time: MonoTime) -> Instant {
        // A wake-up in a hundred years is none; the addition would overflow on some systems.
        let after = Duration::from_nanos(time.as_nanos()).min(Duration::from_secs(100 * 365 * 86_400));
        self.origin + after
    }

    /// A point of the standard library's clock; before the origin counts as the origin.
    pub(crate) fn at_std(&self, time: StdInstant) -> MonoTime {
        self.at(Instant::from_std(time))
    }

    fn at(&self, time: Instant) -> MonoTime {
        // 0 means "never" elsewhere, so that time starts at 1 ns.
        let nanos = time.saturating_duration_since(self.origin).as_nanos();
        MonoTime::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX).max(1))
    }
}
