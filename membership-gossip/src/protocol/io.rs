//! Inputs and effects: the whole interface to the outside.
//!
//! The owner of the machine has the clock and the network. It calls
//! [`Protocol::handle`](super::Protocol::handle) with an [`Input`] and carries out the [`Effect`]s in
//! their order.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use membership_core::protocol::{Destination, LinkId, PeerIdentity};
use membership_core::{FoundingId, SiloAddress};

use super::message::{Header, Message, Refusal};
use crate::downing::{Claim, Decision, Lease};
use crate::view::GossipView;

/// An event that the machine handles.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Input {
    /// The time that [`Protocol::next_wakeup`](super::Protocol::next_wakeup) returned has come.
    Wake,
    /// A message arrived.
    Message {
        /// The connection by which it came.
        link: LinkId,
        /// Who is at the other end of that connection.
        peer: PeerIdentity,
        /// Its sender and receiver.
        header: Header,
        /// Its content.
        body: Arc<Message>,
        /// How long it waited in this process before it was handled.
        waited: Duration,
    },
    /// The owner measured by how much a due task ran late.
    ExecutorLag(Duration),
    /// Something that had to arrive at a member did not (specification: system messages that cannot
    /// be delivered). It stays unreachable until it is removed.
    Quarantine(SiloAddress),
    /// The arbiter answered [`Effect::AcquireLease`].
    LeaseAnswer {
        /// Which request.
        call: u64,
        /// What it answered. An arbiter that cannot be asked has not given the lease.
        lease: Lease,
    },
    /// A command of the application.
    Command(Command),
}

/// A command of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// Join the cluster that one of these contact points is in, or found one as configured. No
    /// effect after the first time.
    Join {
        /// Endpoints where members may be; the same list, in the same order, for all.
        contact_points: Vec<SocketAddr>,
    },
    /// Leave: leaving is published, then exiting once all know. Ended by
    /// [`ExitDone`](Self::ExitDone), or after the leave timeout.
    Leave,
    /// The application has handed over what it owned: end as soon as all know that this member
    /// exits.
    ExitDone,
    /// Down a member, because an operator knows that it has ended.
    Down {
        /// The member.
        member: SiloAddress,
    },
}

/// An action that the owner must carry out.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Effect {
    /// Send a message. It may get lost.
    Send {
        /// The destination.
        to: Destination,
        /// Sender and receiver.
        header: Header,
        /// The content; shared among receivers.
        body: Arc<Message>,
    },
    /// Publish a view.
    Publish(Box<GossipView>),
    /// Report to the application.
    Tell(Notice),
    /// Ask the arbiter for the lease. Answered by [`Input::LeaseAnswer`].
    AcquireLease {
        /// Identifies the request.
        call: u64,
        /// What this side does with it.
        claim: Box<Claim>,
    },
    /// Give the lease back.
    ReleaseLease,
    /// The last effect: the member has ended. Later inputs have no effects.
    Stop(Termination),
}

/// A report.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// This process has founded a cluster.
    Founded(FoundingId),
    /// This process was taken in.
    Welcomed {
        /// By whom.
        by: SiloAddress,
    },
    /// A member did not take this process in. It goes on trying, unless it ends with
    /// [`Termination::Refused`].
    NotTakenIn {
        /// Who refused. This process itself: its own address is a contact point, and nobody answers
        /// there, so it founds nothing.
        by: SiloAddress,
        /// Why.
        reason: Refusal,
    },
    /// All know that this member leaves: hand over, then send [`Command::ExitDone`].
    Exiting,
    /// The resolver has decided.
    Decided(Decision),
    /// A member does not answer this one, but answers others: the link is broken, not the member.
    LinkBroken {
        /// The member.
        to: SiloAddress,
    },
    /// This process was paused, and flags nobody until it has listened again.
    Paused(Duration),
    /// A message came from another founding, or one that this build does not speak with.
    Stranger {
        /// Its sender.
        from: SiloAddress,
    },
}

/// Why a member has ended. It never returns; a new one needs a larger epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Termination {
    /// It left.
    Left,
    /// It left, but not all know in the time it had.
    LeaveTimedOut,
    /// It was downed by an operator or a resolver.
    Downed,
    /// It was removed, or a newer incarnation has its endpoint.
    Gone,
    /// It was not taken in, and never will be.
    Refused(Refusal),
    /// Its owner dropped it, with its runtime, without a word to others. The machine never says this.
    Dropped,
    /// Its owner panicked, which is a defect. The machine never says this.
    Panicked {
        /// What the panic said.
        message: String,
    },
}

impl fmt::Display for Termination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Left => f.write_str("left"),
            Self::LeaveTimedOut => f.write_str("left, but not all know"),
            Self::Downed => f.write_str("downed by an operator or a resolver"),
            Self::Gone => f.write_str("removed, or replaced by a newer process at its endpoint"),
            Self::Refused(why) => write!(f, "not taken in: {why}"),
            Self::Dropped => f.write_str("stopped with its runtime, without a word to others"),
            Self::Panicked { message } => write!(f, "its task panicked, a defect: {message}"),
        }
    }
}

impl Termination {
    /// A word for labels and events.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::LeaveTimedOut => "leave_timed_out",
            Self::Downed => "downed",
            Self::Gone => "gone",
            Self::Refused(_) => "refused",
            Self::Dropped => "dropped",
            Self::Panicked { .. } => "panicked",
        }
    }
}
