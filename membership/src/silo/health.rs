//! How a silo is doing, for probes and dashboards.

use std::time::Duration;

use membership_core::SiloStatus;
use membership_core::protocol::{TableState, WriterState};

/// How a silo is doing.
///
/// | probe | use | why |
/// |---|---|---|
/// | liveness ("restart me") | [`live`](Self::live) | After a death, or without a running driver, only a new process helps. |
/// | readiness ("send me traffic") | [`ready`](Self::ready) | No new work while joining, leaving, or suspended after a pause. |
/// | neither; an alert | [`table`](Self::table), [`table_age`](Self::table_age) | Silos keep running without the table. A failing probe would turn an outage of the store into one of the service. |
/// | neither; an alert | [`unreached`](Self::unreached) | Part of the network has failed. A new process would not reach them either. |
/// | neither; a graph | [`writer`](Self::writer) | Shows which silo writes for the others, and what waits for it. |
/// | neither; a graph | [`score`](Self::score), [`local`](Self::local) | Shows slow machines; the protocol already allows for them. |
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Health {
    /// All reasons to mistrust itself: 0 (healthy) to 8.
    pub score: u8,
    /// The reasons within this process alone (a late executor, late timers): 0 to 8.
    pub local: u8,
    /// Its status; Dead after the end.
    pub status: SiloStatus,
    /// How long ago the view last changed. Large in a quiet cluster.
    pub view_age: Duration,
    /// How long ago the table was last read or written with success.
    pub table_age: Duration,
    /// The state of the table, as this silo sees it.
    pub table: TableState,
    /// Which silo it would ask to write its changes, and how many wait: as of a moment ago, at most a
    /// second.
    pub writer: WriterState,
    /// Active, not suspended, and not asked to leave: for a readiness probe.
    pub ready: bool,
    /// Not stopped for good, and its driver took an input within the last 30 s: for a liveness
    /// probe.
    pub live: bool,
    /// How many silos it does not reach, though others do: see
    /// [`PartialPartition`](super::EventKind::PartialPartition).
    pub unreached: usize,
    /// After a long pause, it publishes and writes nothing until the table has been read.
    pub suspended: bool,
}
