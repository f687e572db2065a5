//! The monotonic and the wall clock. All silos of one process have the same monotonic origin.
//!
//! On some systems the monotonic clock stops while the machine is suspended. After a resume a silo
//! would then consider old knowledge fresh, although leases have expired meanwhile and it may have
//! been declared dead. Where the system reports the time of suspension, it is added.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant as StdInstant, SystemTime, UNIX_EPOCH};

use membership_core::{MonoTime, Now, WallTime};
use tokio::time::Instant;

static ORIGIN: OnceLock<Instant> = OnceLock::new();
static SLEEP: Mutex<Sleep> = Mutex::new(Sleep {
    lead: None,
    total: Duration::ZERO,
    noticed: None,
});
/// Caches in nanoseconds, so that most calls need no lock: a smaller lead means that the machine
/// has not been suspended since, and the total suspension until now.
static NEXT_LEAD: AtomicU64 = AtomicU64::new(0);
static TOTAL: AtomicU64 = AtomicU64::new(0);

/// The process's clocks. Monotonic time comes from tokio, so that a test may pause it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        let origin = *ORIGIN.get_or_init(Instant::now);
        slept();
        Self { origin }
    }

    pub(crate) fn mono(&self) -> MonoTime {
        self.at(Instant::now(), slept())
    }

    pub(crate) fn now(&self) -> Now {
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Now {
            mono: self.mono(),
            wall: WallTime::from_millis(u64::try_from(wall.as_millis()).unwrap_or(u64::MAX)),
        }
    }

    /// The time of tokio's clock that corresponds to `time`, if the machine is not suspended until
    /// then.
    pub(crate) fn instant(&self, time: MonoTime) -> Instant {
        let awake = Duration::from_nanos(time.as_nanos()).saturating_sub(slept());
        // At most a hundred years: a larger addition would overflow on some systems.
        self.origin + awake.min(Duration::from_secs(100 * 365 * 86_400))
    }

    /// A time of the standard library's clock. Times before the origin, and times that may be
    /// before the last suspension, count as the origin.
    pub(crate) fn at_std(&self, time: StdInstant) -> MonoTime {
        slept();
        let asleep = SLEEP
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .before(time);
        asleep.map_or(MonoTime::from_nanos(1), |asleep| {
            self.at(Instant::from_std(time), asleep)
        })
    }

    fn at(&self, time: Instant, asleep: Duration) -> MonoTime {
        // 0 means "never" elsewhere, so that time starts at 1 ns.
        let nanos = (time.saturating_duration_since(self.origin) + asleep).as_nanos();
        MonoTime::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX).max(1))
    }
}

/// How long the machine has been suspended since this process first called this.
fn slept() -> Duration {
    let Some(lead) = lead() else {
        return Duration::ZERO;
    };
    if nanos(lead) < NEXT_LEAD.load(Ordering::Acquire) {
        return Duration::from_nanos(TOTAL.load(Ordering::Relaxed));
    }
    let mut sleep = SLEEP.lock().unwrap_or_else(PoisonError::into_inner);
    let (next, total) = sleep.note(lead, StdInstant::now);
    TOTAL.store(nanos(total), Ordering::Relaxed);
    NEXT_LEAD.store(nanos(next), Ordering::Release);
    total
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// How far the clock that includes suspension is ahead of the monotonic one. Never too large,
/// because that clock is read first.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn lead() -> Option<Duration> {
    use rustix::time::{ClockId, clock_gettime};
    let (boot, awake) = (
        clock_gettime(ClockId::Boottime),
        clock_gettime(ClockId::Monotonic),
    );
    let nanos =
        |at: rustix::time::Timespec| i128::from(at.tv_sec) * 1_000_000_000 + i128::from(at.tv_nsec);
    Some(Duration::from_nanos(
        u64::try_from(nanos(boot) - nanos(awake)).unwrap_or(0),
    ))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn lead() -> Option<Duration> {
    None
}

/// A smaller lead is the time between the two readings, not a suspension.
const SHORTEST: Duration = Duration::from_millis(20);

struct Sleep {
    /// The lead when the last suspension was noticed; before that, the first lead.
    lead: Option<Duration>,
    total: Duration,
    /// When that was, by the clock that stops during a suspension.
    noticed: Option<StdInstant>,
}

impl Sleep {
    /// Records a suspension if the lead has grown. Returns the lead from which there is more to
    /// record, and the total time of suspension.
    fn note(&mut self, lead: Duration, now: impl FnOnce() -> StdInstant) -> (Duration, Duration) {
        let before = *self.lead.get_or_insert(lead);
        if lead >= before + SHORTEST {
            self.lead = Some(lead);
            self.total += lead - before;
            self.noticed = Some(now());
        }
        (self.lead.unwrap_or(before) + SHORTEST, self.total)
    }

    /// How long the machine had been suspended at `time`; none if a later suspension may be
    /// included.
    fn before(&self, time: StdInstant) -> Option<Duration> {
        self.noticed
            .is_none_or(|noticed| time >= noticed)
            .then_some(self.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_sleep_counts_from_when_it_is_noticed() {
        let mut sleep = Sleep {
            lead: None,
            total: Duration::ZERO,
            noticed: None,
        };
        let at = |seconds| ORIGIN.get_or_init(Instant::now).into_std() + secs(seconds);
        let never = || -> StdInstant { unreachable!("there was no sleep") };
        // Suspensions before the start of this process do not count.
        assert_eq!(
            sleep.note(secs(1_000), never),
            (secs(1_000) + SHORTEST, secs(0))
        );
        assert_eq!(sleep.note(secs(999), never).1, secs(0));
        assert_eq!(
            sleep.note(secs(1_000) + SHORTEST / 2, never),
            (secs(1_000) + SHORTEST, secs(0))
        );
        assert_eq!(sleep.before(at(3)), Some(secs(0)));
        assert_eq!(
            sleep.note(secs(1_600), || at(5)),
            (secs(1_600) + SHORTEST, secs(600))
        );
        assert_eq!(sleep.note(secs(1_500), never).1, secs(600));
        assert_eq!(
            (
                sleep.before(at(3)),
                sleep.before(at(5)),
                sleep.before(at(9))
            ),
            (None, Some(secs(600)), Some(secs(600)))
        );
        assert_eq!(sleep.note(secs(1_700), || at(20)).1, secs(700));
        assert_eq!(
            (sleep.before(at(9)), sleep.before(at(20))),
            (None, Some(secs(700)))
        );
    }

    #[test]
    fn both_ways_lead_to_the_same_time() {
        let clock = Clock::new();
        let (before, std, after) = (clock.mono(), StdInstant::now(), clock.mono());
        let at = clock.at_std(std);
        assert!(before <= at && at <= after, "{before:?} {at:?} {after:?}");
        assert_eq!(clock.at(clock.instant(after), slept()), after);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_system_tells_of_sleep() {
        assert!(lead().is_some());
    }
}
