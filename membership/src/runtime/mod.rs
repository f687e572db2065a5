//! What the runtime of a silo and that of a member without a table share: clocks, how late the
//! executor is, the way to a transport that is bound, streams of events, and how a task ends.

pub(crate) mod clock;
pub(crate) mod feed;
pub(crate) mod guard;
pub(crate) mod host;
pub(crate) mod lag;
pub(crate) mod listen;
pub(crate) mod stage;

pub use listen::ListenError;

/// The bound of each queue of the inbox, in messages; the transport stops reading when it is full.
pub(crate) const INBOX: usize = 4096;
/// The bound on requests of handles that the driver has not seen yet.
pub(crate) const REQUESTS: usize = 256;
/// How long a transport may take to shut down; a good one takes a second at most.
pub(crate) const CLOSING: std::time::Duration = std::time::Duration::from_secs(2);
/// Without an input for this long, a driver does not run: its own lag task sends one twice a
/// second.
pub(crate) const SILENT: std::time::Duration = std::time::Duration::from_secs(30);
/// With more changes than this in one view, only their number is logged.
pub(crate) const MAX_LINES: usize = 32;
