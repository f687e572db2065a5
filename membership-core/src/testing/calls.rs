//! What happens to the messages and table calls of a process on their way.

use std::sync::Arc;
use std::time::Duration;

use super::checks::Fact;
use super::circumstances::{ProcessId, VirtualTime};
use super::cluster::Cluster;
use super::describe;
use super::events::Event;
use super::process::Held;
use super::store::{Call, Happened};
use crate::protocol::{CallId, Destination, Header, Input, Message};
use crate::{CauseOfDeath, SiloStatus, TableErrorKind};

/// How late a commit of unknown outcome may still land.
const LATEST: Duration = Duration::from_secs(15);

impl Cluster {
    pub(super) fn send(&mut self, from: ProcessId, to: Destination, header: Header, body: Arc<Message>) {
        self.stats.sent += 1;
        self.count_sent(from, &header, &body);
        let Some(process) = self.processes.get_mut(from.0) else { return };
        if process.held_until.is_some() {
            process.outbox.push(Held::Message { to, header, body });
            return;
        }
        self.transmit(from, to, header, body);
    }

    fn count_sent(&mut self, from: ProcessId, header: &Header, body: &Arc<Message>) {
        let bytes = if self.count_bytes { self.sizes.frame(header, body) } else { 0 };
        if let Some(process) = self.processes.get_mut(from.0) {
            process.sent.messages += 1;
            process.sent.bytes += bytes;
        }
    }

    /// A message leaves a process.
    pub(super) fn transmit(&mut self, from: ProcessId, to: Destination, header: Header, body: Arc<Message>) {
        let receiver = match to {
            Destination::Endpoint(endpoint) | Destination::Fresh(endpoint) => match self.listeners.get(&endpoint) {
                Some(id) => *id,
                None => {
                    self.stats.dropped += 1;
                    if self.refuse {
                        let at = self.now + self.network.latency().draw(&mut self.dice) * 2;
                        self.agenda.plan(at, Event::Undeliverable { to: from, endpoint });
                    }
                    return;
                }
            },
            Destination::Link(link) => ProcessId(usize::try_from(link.0).unwrap_or(usize::MAX)),
        };
        let (Some(me), Some(they)) = (self.processes.get(from.0), self.processes.get(receiver.0)) else { return };
        let way = if they.is_running() { self.network.carry(me.place, they.place, &mut self.dice) } else { None };
        match way {
            Some(after) => self.agenda.plan(self.now + after, Event::Deliver { from, to: receiver, header, body }),
            None => self.stats.dropped += 1,
        }
    }

    pub(super) fn call(&mut self, process: ProcessId, call: CallId, what: Call) {
        let deadline = self.now + self.config.table_call_timeout;
        let Some(caller) = self.processes.get_mut(process.0) else { return };
        caller.asked.push((call, deadline));
        if caller.held_until.is_some() {
            self.agenda.plan(deadline, Event::GiveUp { process, call, input: what.timed_out(call) });
            caller.outbox.push(Held::Call { call, what });
            return;
        }
        self.launch(process, call, what, deadline);
    }

    /// A table call leaves a process, which waits for the answer until `deadline`.
    pub(super) fn launch(&mut self, process: ProcessId, call: CallId, what: Call, deadline: VirtualTime) {
        let (low, high) = self.store.latency;
        let there = self.dice.between(low, high);
        let back = self.dice.between(low, high);
        let deadline = deadline.max(self.now);
        let (at, answer_at) = (self.now + there, self.now + there + back);
        if self.store.is_down(self.now) || self.store.cut.contains(&process) {
            self.stats.failed_calls += 1;
            let refused = self.dice.chance(0.5);
            let (when, input) = if refused {
                (answer_at.min(deadline), what.failed(call, TableErrorKind::Unavailable, "connection refused"))
            } else {
                (deadline, what.timed_out(call))
            };
            self.agenda.plan(when, Event::Answer { process, input });
            return;
        }
        if matches!(what, Call::Commit(_)) && self.dice.chance(self.store.unknown) {
            self.stats.unknown += 1;
            let lands_at = match self.dice.below(3) {
                0 => Some(at),
                1 => Some(at + self.dice.between(Duration::from_millis(500), LATEST)),
                _ => None,
            };
            let input = what.failed(call, TableErrorKind::OutcomeUnknown, "connection reset");
            self.agenda.plan(answer_at.min(deadline), Event::Answer { process, input });
            if let Some(at) = lands_at {
                self.agenda.plan(at, Event::Ask { process, call, what, answer_at: None });
            }
            return;
        }
        if answer_at > deadline {
            // The process gives up; the call may still be carried out, before or after that.
            self.stats.failed_calls += 1;
            self.agenda.plan(deadline, Event::Answer { process, input: what.timed_out(call) });
            self.agenda.plan(at, Event::Ask { process, call, what, answer_at: None });
            return;
        }
        self.agenda.plan(at, Event::Ask { process, call, what, answer_at: Some(answer_at) });
    }

    /// A call is at the table.
    pub(super) fn ask(&mut self, process: ProcessId, call: CallId, what: Call, answer_at: Option<VirtualTime>) {
        if self.store.is_down(self.now) {
            if let Some(at) = answer_at {
                self.stats.failed_calls += 1;
                self.agenda.plan(at, Event::Answer { process, input: what.timed_out(call) });
            }
            return;
        }
        let mut happened = Happened::default();
        let input = self.store.perform(call, &what, &mut self.dice, &mut happened);
        if answer_at.is_none() && matches!(&input, Input::Committed { result: Ok(crate::CommitOutcome::Committed(_)), .. }) {
            self.stats.unknown_landed += 1;
        }
        self.tell_table(&happened);
        if let Some(at) = answer_at {
            self.agenda.plan(at, Event::Answer { process, input });
        }
    }

    pub(super) fn tell_table(&mut self, happened: &Happened) {
        self.stats.conflicts += u64::from(happened.conflict);
        if let Some(snapshot) = &happened.founded {
            self.show(&Fact::Founded(snapshot));
        }
        if let Some((silo, counter)) = happened.beat {
            let beats = self.truth.beats.entry(silo).or_default();
            if counter > 0 {
                *beats = [Some(self.now), beats[0]];
            }
        }
        for (before, after, request) in &happened.commits {
            self.stats.commits += 1;
            let who = request.committer.map_or_else(|| "somebody".to_owned(), |c| self.truth.name(&c));
            self.note_world(format!("the table takes {who}'s {}", describe::commit(request, &self.truth)));
            for change in &request.changes {
                let Ok(silo) = change.key().parse() else { continue };
                let was_dead = before.rows.get(&silo).is_some_and(|e| e.status == SiloStatus::Dead);
                let voted = after.rows.get(&silo).is_some_and(|e| e.death.as_ref().is_some_and(|d| d.cause == CauseOfDeath::Voted));
                if voted && !was_dead {
                    self.stats.voted_out += 1;
                    self.stats.voted_out_alive += u64::from(self.truth.owner(&silo).is_some_and(|l| l.ended.is_none()));
                }
            }
            self.show(&Fact::Committed { before, after, request });
        }
    }
}
