//! How many silos a newcomer asks for contact at a time, where one silo writes for many. Hundreds may
//! start within a second and each asks all others, so that every machine has more handshakes to do than
//! it can within their timeout: all would fail together, and be tried again together. The number grows
//! with each contact that comes quickly, and is halved when one does not.

use std::time::Duration;

use crate::MonoTime;

/// At the start.
const FIRST: usize = 16;
/// The bounds afterwards.
const LEAST: usize = 4;
const MOST: usize = 1024;
/// The bound while timers are so late.
const WHILE_LATE: usize = 3;
const LATE: Duration = Duration::from_millis(150);
/// How long a contact that does not come holds its place.
pub(super) const SLOT: Duration = Duration::from_millis(500);
/// The shortest time between two halvings: contacts that were begun together fail together.
const REST: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Pace {
    most: usize,
    slowed: Option<MonoTime>,
    /// Somebody was not asked because no place was free.
    pub(super) is_full: bool,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            most: FIRST,
            slowed: None,
            is_full: false,
        }
    }
}

impl Pace {
    /// How many more may be asked while so many have been, and this silo's timers are so late.
    pub(super) fn free(&self, under_way: usize, late: Duration) -> usize {
        let most = if late >= LATE {
            self.most.min(WHILE_LATE)
        } else {
            self.most
        };
        most.saturating_sub(under_way)
    }

    /// A contact has come after this time.
    pub(super) fn on_success(&mut self, took: Duration) {
        if took < SLOT {
            self.most = (self.most + 1).min(MOST);
        }
    }

    /// A contact is tried again.
    pub(super) fn on_failure(&mut self, now: MonoTime) {
        if self.slowed.is_none_or(|at| now.since(at) >= REST) {
            self.slowed = Some(now);
            self.most = (self.most / 2).max(LEAST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_grows_with_each_quick_contact_and_is_halved_once_a_second() {
        let at = |ms| MonoTime::ZERO + Duration::from_millis(ms);
        let mut pace = Pace::default();
        let free = |pace: &Pace, n| pace.free(n, Duration::ZERO);
        assert_eq!(
            (free(&pace, 0), free(&pace, 15), free(&pace, 99)),
            (16, 1, 0)
        );
        let late = Duration::from_millis(150);
        assert_eq!((pace.free(0, late), pace.free(2, late)), (3, 1));
        pace.on_success(Duration::from_millis(499));
        assert_eq!(free(&pace, 0), 17);
        pace.on_success(SLOT);
        assert_eq!(free(&pace, 0), 17, "a slow one");
        pace.on_failure(at(5000));
        pace.on_failure(at(5999));
        assert_eq!(free(&pace, 0), 8, "those of one second count once");
        for second in 6..20 {
            pace.on_failure(at(second * 1000));
        }
        assert_eq!(free(&pace, 0), LEAST);
        for _ in 0..2000 {
            pace.on_success(Duration::ZERO);
        }
        assert_eq!(free(&pace, 0), MOST);
    }
}
