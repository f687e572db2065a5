//! What goes into the protocol and what comes out: the only door between it and the world.
//!
//! The runtime (or a simulator, or a test) owns the clock, the table and the network. It calls
//! [`Protocol::handle`](super::Protocol::handle) with an [`Input`] and carries out the [`Effect`]s in the order they come.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::message::{Header, Message};
use super::notice::{Notice, Observation, RequestId, Termination};
use crate::{
    ClusterView, CommitOutcome, CommitRequest, HeartbeatWrite, InitializeRequest, ReadAnswer,
    ReadRequest, SiloAddress, TableError,
};

/// Names one call to the table, so that its result finds the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// Names one connection of the transport: what an answer goes back on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// Where a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Destination {
    /// To whoever listens there, on any connection that leads there, or on a new one.
    Endpoint(SocketAddr),
    /// The same, but always dialled afresh: it proves that the address leads there now.
    Fresh(SocketAddr),
    /// Back on the connection that something came by. Lost when that is closed.
    Link(LinkId),
}

/// Something happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Input {
    /// The first input: begin.
    Start,
    /// The time that [`Protocol::next_wakeup`](super::Protocol::next_wakeup) named has come. Harmless at any other time.
    Wake,
    /// A message arrived.
    Message {
        /// The connection it came by.
        link: LinkId,
        /// Who sends it, to whom, and what view it has.
        header: Header,
        /// What it says.
        body: Arc<Message>,
    },
    /// A message could not be delivered. Only for better reports: nobody is suspected because of it.
    SendFailed {
        /// Where it was to go.
        to: SocketAddr,
        /// The transport's words.
        reason: String,
    },
    /// The application heard from a silo on a connection of its own, in answer to something it sent at `asked`. Evidence of life.
    Heard {
        /// Who.
        from: SiloAddress,
        /// When the question was sent, by this process's monotonic clock.
        asked: crate::MonoTime,
    },
    /// `initialize` ended.
    Initialized {
        /// Which call.
        call: CallId,
        /// How.
        result: Result<(), TableError>,
    },
    /// `read` ended.
    Read {
        /// Which call.
        call: CallId,
        /// How.
        result: Result<ReadAnswer, TableError>,
    },
    /// `commit` ended. A call that timed out is an error of kind `OutcomeUnknown`.
    Committed {
        /// Which call.
        call: CallId,
        /// How.
        result: Result<CommitOutcome, TableError>,
    },
    /// `update_i_am_alive` ended.
    HeartbeatWritten {
        /// Which call.
        call: CallId,
        /// How.
        result: Result<(), TableError>,
    },
    /// The runtime measured how late its executor ran a task that was due: feeds the local health score.
    ExecutorLag(Duration),
    /// The store hints that the version may have moved.
    Hint,
    /// The application wants something.
    Command(Command),
}

/// What the application can want.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// Publish ShuttingDown and drain. Answered by [`Notice::LeaveBegun`].
    BeginLeave,
    /// The application has drained: end the row. Answered by [`Effect::Stop`]. Implies `BeginLeave`.
    FinishLeave,
    /// Leave without draining, within the leave timeout: Stopping, then Dead. Answered by [`Effect::Stop`].
    Stop,
    /// End a silo without a vote. Answered by [`Notice::Answered`].
    Evict {
        /// Names the request in the answer.
        request: RequestId,
        /// Whom.
        silo: SiloAddress,
        /// Why, for the row.
        reason: String,
    },
    /// See to it that the view is at least at this version, or as recent as the table now if none. Answered by [`Notice::Refreshed`].
    Refresh {
        /// Names the request in the answer.
        request: RequestId,
        /// The version; reached or not, one successful read ends the request.
        at_least: Option<u64>,
    },
}

/// Something to carry out.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Effect {
    /// Send a message. It may get lost.
    Send {
        /// Where.
        to: Destination,
        /// Who sends it, to whom, and what view it has.
        header: Header,
        /// What it says; shared among receivers, so that it is encoded once.
        body: Arc<Message>,
    },
    /// Call `initialize`.
    Initialize {
        /// Names the call in the result.
        call: CallId,
        /// With this.
        request: InitializeRequest,
    },
    /// Call `read`.
    Read {
        /// Names the call in the result.
        call: CallId,
        /// With this.
        request: ReadRequest,
    },
    /// Call `commit`.
    Commit {
        /// Names the call in the result.
        call: CallId,
        /// With this.
        request: CommitRequest,
    },
    /// Call `update_i_am_alive`.
    WriteHeartbeat {
        /// Names the call in the result.
        call: CallId,
        /// With this.
        write: HeartbeatWrite,
    },
    /// Publish a view. Versions strictly rise.
    Publish(ClusterView),
    /// Tell the application.
    Tell(Notice),
    /// Count or measure something.
    Observe(Observation),
    /// The last effect: the silo has stopped for good. Later inputs have no effects.
    Stop(Termination),
}
