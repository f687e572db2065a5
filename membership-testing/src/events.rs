//! The event queue: what will happen, in the order of time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::clock::VirtualTime;
use crate::ground_truth::ProcessId;
use crate::table_call::TableCall;
use membership_core::protocol::{CallId, Command, Header, Input, Message};

/// When an answer reaches the process, and how long the process waits for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub at: VirtualTime,
    pub deadline: VirtualTime,
}

#[derive(Debug)]
pub(super) enum Event {
    /// A timer of a process is due.
    Wake(ProcessId),
    /// A message arrives.
    Deliver {
        from: ProcessId,
        to: ProcessId,
        header: Header,
        body: Arc<Message>,
    },
    /// A sender learns that its message found no listener.
    Undeliverable { to: ProcessId, endpoint: SocketAddr },
    /// A process learns that its connection with another one has ended.
    Disconnected {
        process: ProcessId,
        peer: SocketAddr,
    },
    /// A table call reaches the table. `answer` is none if the caller already has an answer.
    TableCall {
        process: ProcessId,
        call: CallId,
        what: TableCall,
        answer: Option<Due>,
    },
    /// An answer of the table reaches the process.
    Answer { process: ProcessId, input: Input },
    /// A call of a held process times out, unless it has been answered.
    GiveUp {
        process: ProcessId,
        call: CallId,
        input: Input,
    },
    /// The application sends a command to its silo.
    Command {
        process: ProcessId,
        command: Command,
    },
    /// The pause of a process ends, unless it was prolonged.
    Resume(ProcessId),
    /// A stuttering process stalls again.
    StallAgain(ProcessId),
    /// A starving executor stalls.
    Starve(ProcessId),
    /// The hold of a process ends, unless it was prolonged.
    Release(ProcessId),
    /// A hostile peer sends a message.
    Forge,
    /// Flapping links change their state, unless the fault has ended.
    Flap(u64),
    /// The other threads of a hung process answer their peers.
    Chatter(ProcessId),
    /// The outage of the table ends, unless it was prolonged.
    TableUp,
    /// The outage of the network ends.
    NetworkUp,
}

struct Scheduled {
    at: VirtualTime,
    seq: u64,
    event: Box<Event>,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.seq == other.seq
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    /// The heap returns the largest element first, so an earlier event is larger. Events of the
    /// same time keep the order in which they were scheduled.
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.cmp(&self.at).then(other.seq.cmp(&self.seq))
    }
}

/// Events in the order of time; those of the same time in the order in which they were scheduled.
#[derive(Default)]
pub(super) struct EventQueue {
    heap: BinaryHeap<Scheduled>,
    seq: u64,
}

impl EventQueue {
    pub(super) fn schedule(&mut self, at: VirtualTime, event: Event) {
        self.seq += 1;
        self.heap.push(Scheduled {
            at,
            seq: self.seq,
            event: Box::new(event),
        });
    }

    pub(super) fn next(&mut self, until: VirtualTime) -> Option<(VirtualTime, Event)> {
        if self.heap.peek()?.at > until {
            return None;
        }
        self.heap.pop().map(|due| (due.at, *due.event))
    }
}

impl std::fmt::Debug for EventQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventQueue")
            .field("scheduled", &self.heap.len())
            .finish_non_exhaustive()
    }
}
