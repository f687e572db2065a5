//! Hooks for the test harness (`membership-testing`) and the simulator. They are not part of the
//! public API: applications must not use them, and they may change in any release.
//!
//! A [`ProtocolVariant`] switches parts of the protocol off, or replaces them by what another
//! protocol of the same family does, so that the two can be measured side by side in virtual time.

use std::time::Duration;

use crate::model::settings::HEARTBEAT_SPACING;
use crate::protocol::{Protocol, Setup};

/// Creates a silo's protocol that behaves as `variant` says instead of as
/// [`ProtocolVariant::STANDARD`].
#[must_use]
pub fn protocol(setup: Setup, variant: ProtocolVariant) -> Protocol {
    Protocol::with_variant(setup, variant)
}

pub use crate::protocol::Interned;

/// The same for many silos of one simulation, which share their views: memory and time are then those of
/// the changes. Nobody may forge rows.
#[must_use]
pub fn sharing_protocol(setup: Setup, variant: ProtocolVariant, views: &Interned) -> Protocol {
    protocol(setup, variant).sharing(views.clone())
}

/// Whom a silo asks before it votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// All Active silos: a vote needs a majority of them.
    Everybody,
    /// One of them, whose consent is one more vote. No majority is needed.
    One,
    /// Nobody. No majority is needed.
    Nobody,
}

/// Differences in the behaviour of a silo beyond its configuration. The default is this protocol.
/// All silos of a simulated cluster should have the same variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolVariant {
    /// Probe the next silos on a single ring instead of one silo on each of several rings: the
    /// silos that accuse a silo are then neighbours of each other.
    pub one_ring: bool,
    /// Whom a silo asks before it votes.
    pub calls: Calls,
    /// A silo whose own health is bad accuses no other silo and uses longer timeouts.
    pub self_monitoring: bool,
    /// An answer to any other message delays a vote.
    pub evidence_of_life: bool,
    /// The largest number of changes in one commit; at least 1.
    pub changes_per_commit: usize,
    /// Bounds of the wait after n conflicts in a row: a random time between `[0]` and
    /// `min([0] + [1] * 2^n, [2])`. `None`: the rule of
    /// [`conflict_backoff`](crate::protocol::conflict_backoff).
    pub conflict_backoff: Option<[Duration; 3]>,
    /// One silo writes the changes of many: each asks the silo that made the last commit.
    pub scribe: bool,
    /// Up to how many silos a joining one contacts everybody; above, a set that follows from the rows.
    /// `None`: always everybody.
    pub full_check_limit: Option<usize>,
    /// With a scribe: above how many silos a commit is passed on over the probe rings; its author sends it
    /// to its neighbours alone. `None`: its author always sends it to everybody.
    pub flood_above: Option<usize>,
    /// With a scribe: how much rarer the looks at the version row alone become with each row that a silo
    /// knows, where messages cause them. `None`: as much as the reads of all rows.
    pub look_per_row: Option<Duration>,
    /// With a scribe: a newcomer that waits for its row takes the rows that the table has shown it, also if
    /// the table has moved on since. Otherwise it tries a few times to catch up, and then reads all rows.
    pub takes_older: bool,
    /// With a scribe: how many changes of others may wait at the silo that writes them; more are sent
    /// elsewhere.
    pub most_waiting: usize,
    /// Joins and activations that find a commit full wait for the next one unseen, so that the work for a
    /// commit is that of what it writes. Otherwise each of them is judged for each commit.
    pub stops_when_full: bool,
    /// With a scribe: how many of its last views a silo keeps; at least 1.
    pub kept_views: usize,
    /// The least usual time between two heartbeats of the whole cluster. Where the usual period of all
    /// Active silos would bring more, the leader's heartbeat is the pulse of the cluster: one that stands
    /// still then says nothing for a while of a silo that nobody accuses, and with a scribe the others write
    /// theirs rarely. `None`: never.
    pub heartbeat_spacing: Option<Duration>,
    /// With a scribe: the size of the rows in one message to a newcomer, in bytes. At least one row is
    /// sent.
    pub part_bytes: usize,
}

impl ProtocolVariant {
    /// This protocol itself.
    pub const STANDARD: Self = Self {
        one_ring: false,
        calls: Calls::Everybody,
        self_monitoring: true,
        evidence_of_life: true,
        changes_per_commit: usize::MAX,
        conflict_backoff: None,
        scribe: false,
        full_check_limit: None,
        flood_above: None,
        look_per_row: None,
        takes_older: false,
        most_waiting: 4096,
        stops_when_full: false,
        kept_views: 8,
        heartbeat_spacing: Some(HEARTBEAT_SPACING),
        part_bytes: 3_000,
    };

    /// This protocol where one silo writes for many: [`Config::scribe`](crate::Config::scribe).
    pub const SCRIBE: Self = Self {
        scribe: true,
        full_check_limit: Some(256),
        flood_above: Some(24),
        // The table then serves at most 10,000 such looks a second.
        look_per_row: Some(Duration::from_micros(100)),
        takes_older: true,
        most_waiting: 16_384,
        stops_when_full: true,
        ..Self::STANDARD
    };

    /// The bounds of the wait after this many conflicts in a row, if they are not the standard
    /// ones.
    pub(crate) fn backoff(&self, conflicts: u32) -> Option<(Duration, Duration)> {
        let [least, step, most] = self.conflict_backoff?;
        Some((
            least,
            least
                .saturating_add(step.saturating_mul(2u32.saturating_pow(conflicts)))
                .min(most)
                .max(least),
        ))
    }
}

impl Default for ProtocolVariant {
    fn default() -> Self {
        Self::STANDARD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_backoff_grows_between_its_bounds() {
        let s = Duration::from_secs;
        let other = ProtocolVariant {
            conflict_backoff: Some([s(2), s(2), s(64)]),
            ..ProtocolVariant::STANDARD
        };
        assert_eq!(other.backoff(1), Some((s(2), s(6))));
        assert_eq!(other.backoff(4), Some((s(2), s(34))));
        assert_eq!(other.backoff(u32::MAX), Some((s(2), s(64))));
        assert_eq!(ProtocolVariant::default().backoff(3), None);
    }
}
