//! Inputs and effects of the protocol: its whole interface to the outside.
//!
//! The runtime (or a simulator or a test) owns the clock, the table and the network. It calls
//! [`Protocol::handle`](super::Protocol::handle) with an [`Input`] and carries out the [`Effect`]s
//! in their order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::message::{Header, Message};
use super::notice::{Notice, RequestId, Termination};
use super::observation::Observation;
use crate::{
    ClusterView, CommitOutcome, CommitRequest, HeartbeatWrite, InitializeRequest, InstanceId,
    ReadAnswer, ReadRequest, RowRead, SiloAddress, TableError,
};

/// Identifies one call to the table and matches its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// Identifies one connection of the transport; a reply goes back on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerIdentity {
    /// The process with this id: the transport has proof that it holds the id's private key.
    /// Messages that name another process as their sender are dropped.
    Proven(InstanceId),
    /// The transport proves nothing: whoever can connect may claim to be any silo. Only for
    /// networks that nobody else can reach.
    Unproven,
}

/// The destination of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Destination {
    /// Any connection to this endpoint, or a new one.
    Endpoint(SocketAddr),
    /// A new connection to this endpoint. It proves that the address leads there now.
    Fresh(SocketAddr),
    /// The connection by which a message came. The reply is lost when that connection is closed.
    Link(LinkId),
}

/// An event that the protocol handles.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Input {
    /// Starts the protocol; must be the first input.
    Start,
    /// The time that [`Protocol::next_wakeup`](super::Protocol::next_wakeup) returned has come. Has
    /// no effect at any other time.
    Wake,
    /// A message arrived.
    Message {
        /// The connection by which it came.
        link: LinkId,
        /// Who is at the other end of that connection.
        peer: PeerIdentity,
        /// Its sender, its receiver, and the sender's view version.
        header: Header,
        /// Its content.
        body: Arc<Message>,
    },
    /// A message could not be delivered.
    SendFailed {
        /// Its destination.
        to: SocketAddr,
        /// Whether the machine at that address said that no process listens there. A probe that is
        /// refused is missed at once; any other failure only improves reports, and the probe keeps
        /// its time.
        refused: bool,
        /// The error of the transport.
        reason: String,
    },
    /// The connection with the silo at this endpoint has ended, and not by this process. The silo
    /// is probed at once. Optional: it makes the detection of a crash faster.
    Disconnected {
        /// The address at which that silo is dialled.
        peer: SocketAddr,
    },
    /// The application received an answer from a silo on a connection of its own. This is evidence
    /// of life.
    Heard {
        /// The silo that answered.
        from: SiloAddress,
        /// When the request was sent, by this process's monotonic clock.
        asked: crate::MonoTime,
    },
    /// `initialize` ended.
    Initialized {
        /// The call.
        call: CallId,
        /// Its result.
        result: Result<(), TableError>,
    },
    /// `read` ended.
    Read {
        /// The call.
        call: CallId,
        /// Its result.
        result: Result<ReadAnswer, TableError>,
    },
    /// `read_row` ended.
    RowRead {
        /// The call.
        call: CallId,
        /// Its result.
        result: Result<RowRead, TableError>,
    },
    /// `commit` ended. The result of a call that timed out is an error of kind `OutcomeUnknown`.
    Committed {
        /// The call.
        call: CallId,
        /// Its result.
        result: Result<CommitOutcome, TableError>,
    },
    /// `update_i_am_alive` ended.
    HeartbeatWritten {
        /// The call.
        call: CallId,
        /// Its result.
        result: Result<(), TableError>,
    },
    /// The runtime measured by how much its executor ran a due task late. This feeds the local
    /// health score.
    ExecutorLag(Duration),
    /// The store hints that the version may have changed.
    Hint,
    /// A command of the application.
    Command(Command),
}

/// A command of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// Publish ShuttingDown and drain. Answered by [`Notice::LeaveBegun`].
    BeginLeave,
    /// The application has drained: end the row. Answered by [`Effect::Stop`]. Implies
    /// `BeginLeave`.
    FinishLeave,
    /// Leave without draining, within the leave timeout: Stopping, then Dead. Answered by
    /// [`Effect::Stop`].
    Stop,
    /// End a silo without a vote. Answered by [`Notice::Answered`].
    Evict {
        /// Identifies the request in the answer.
        request: RequestId,
        /// The silo to evict.
        silo: SiloAddress,
        /// The reason; kept in the row.
        reason: String,
    },
    /// Bring the view to at least a version, or to the current version of the table. Answered by
    /// [`Notice::Refreshed`].
    Refresh {
        /// Identifies the request in the answer.
        request: RequestId,
        /// The version; `None` = the current version of the table. One successful read ends the
        /// request, even if the version is not reached.
        at_least: Option<u64>,
    },
}

/// An action that the owner of the protocol must carry out.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Effect {
    /// Send a message. It may get lost.
    Send {
        /// The destination.
        to: Destination,
        /// The sender, the receiver, and the sender's view version.
        header: Header,
        /// The content; shared among receivers, so that it is encoded once.
        body: Arc<Message>,
    },
    /// Call `initialize`.
    Initialize {
        /// Identifies the call in its result.
        call: CallId,
        /// The argument of the call.
        request: InitializeRequest,
    },
    /// Call `read`.
    Read {
        /// Identifies the call in its result.
        call: CallId,
        /// The argument of the call.
        request: ReadRequest,
    },
    /// Call `read_row` with no version as known: is the view that another silo announced the
    /// table's?
    ReadRow {
        /// Identifies the call in its result.
        call: CallId,
        /// The row to read.
        silo: SiloAddress,
    },
    /// Call `commit`.
    Commit {
        /// Identifies the call in its result.
        call: CallId,
        /// The argument of the call.
        request: CommitRequest,
    },
    /// Call `update_i_am_alive`.
    WriteHeartbeat {
        /// Identifies the call in its result.
        call: CallId,
        /// The argument of the call.
        write: HeartbeatWrite,
    },
    /// Publish a view. The versions of published views strictly increase.
    Publish(ClusterView),
    /// Report to the application.
    Tell(Notice),
    /// Count or measure an observation.
    Observe(Observation),
    /// The last effect: the silo has stopped for good. Later inputs have no effects.
    Stop(Termination),
}
