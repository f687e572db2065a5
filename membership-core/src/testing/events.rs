//! The future of the virtual world: what will happen, in the order of time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::sync::Arc;

use super::circumstances::{ProcessId, VirtualTime};
use super::store::Call;
use crate::protocol::{CallId, Command, Header, Input, Message};

/// When an answer gets to the process, and until when that waits for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub at: VirtualTime,
    pub deadline: VirtualTime,
}

#[derive(Debug)]
pub(super) enum Event {
    /// A process wanted to be woken.
    Wake(ProcessId),
    /// A message gets there.
    Deliver {
        from: ProcessId,
        to: ProcessId,
        header: Header,
        body: Arc<Message>,
    },
    /// A sender learns that nobody listens there.
    Undeliverable { to: ProcessId, endpoint: SocketAddr },
    /// A table call gets to the table; the answer is due, unless it was given already.
    Ask {
        process: ProcessId,
        call: CallId,
        what: Call,
        answer: Option<Due>,
    },
    /// The answer of the table gets to the process.
    Answer { process: ProcessId, input: Input },
    /// A process that is held has waited for an answer as long as it waits for one, unless it has it.
    GiveUp {
        process: ProcessId,
        call: CallId,
        input: Input,
    },
    /// The application of a process wants something.
    Wish {
        process: ProcessId,
        command: Command,
    },
    /// The pause of a process ends, if it is not prolonged.
    Resume(ProcessId),
    /// What was held goes on, if that is not prolonged.
    Release(ProcessId),
    /// Links that open and shut do so, unless that has ended.
    Flap(u64),
    /// The rest of a process whose protocol hangs says something to everybody.
    Chatter(ProcessId),
    /// An outage ends, if it is not prolonged.
    TableUp,
    /// The whole network works again.
    NetworkUp,
}

struct Planned {
    at: VirtualTime,
    seq: u64,
    event: Box<Event>,
}

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        self.seq == other.seq
    }
}
impl Eq for Planned {}
impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Planned {
    /// The heap gives the largest first: so earlier is larger, and among equals what was planned first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.cmp(&self.at).then(other.seq.cmp(&self.seq))
    }
}

/// Events by time; those of one moment in the order in which they were planned.
#[derive(Default)]
pub(super) struct Agenda {
    heap: BinaryHeap<Planned>,
    seq: u64,
}

impl Agenda {
    pub(super) fn plan(&mut self, at: VirtualTime, event: Event) {
        self.seq += 1;
        self.heap.push(Planned {
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

impl std::fmt::Debug for Agenda {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agenda")
            .field("planned", &self.heap.len())
            .finish_non_exhaustive()
    }
}
