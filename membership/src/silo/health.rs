//! How a silo is doing, for probes and dashboards.

use std::time::Duration;

use membership_core::SiloStatus;
use membership_core::protocol::TableState;

/// How a silo is doing.
///
/// | probe | use | why |
/// |---|---|---|
/// | liveness ("restart me") | [`live`](Self::live) | A silo that was declared dead, or whose driver does not run any more, never comes back: only a new process does. |
/// | readiness ("send me traffic") | [`ready`](Self::ready) | Joining, leaving or suspended after a pause, it should get no new work. |
/// | neither; an alert | [`table`](Self::table), [`table_age`](Self::table_age) | Without the table everybody keeps running; probes that fail would turn an outage of the store into one of the service. |
/// | neither; a graph | [`score`](Self::score), [`local`](Self::local) | A slow machine is worth knowing of; the protocol already takes it into account. |
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Health {
    /// All reasons to mistrust itself together: 0 (healthy) to 8.
    pub score: u8,
    /// The reasons within this process alone (a late executor, late timers): 0 to 8.
    pub local: u8,
    /// Where the silo is in its life.
    pub status: SiloStatus,
    /// How long ago the view last changed. Large in a quiet cluster.
    pub view_age: Duration,
    /// How long ago the table was last read or written with success.
    pub table_age: Duration,
    /// How the table stands with this silo.
    pub table: TableState,
    /// Active, not suspended, and nobody asked it to leave: feeds a readiness probe.
    pub ready: bool,
    /// Not stopped for good, and its driver took an input within the last 30 s: feeds a liveness probe.
    pub live: bool,
    /// Publishing and writing nothing after a long pause, until the table has been read.
    pub suspended: bool,
}
