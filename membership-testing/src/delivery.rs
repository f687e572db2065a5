//! How messages and table calls travel from a process to their destination.

use std::sync::Arc;
use std::time::Duration;

use crate::checks::Fact;
use crate::clock::VirtualTime;
use crate::cluster::Cluster;
use crate::describe;
use crate::events::{Due, Event};
use crate::ground_truth::ProcessId;
use crate::process::HeldOutput;
use crate::store::{TableChanges, UnknownOutcome};
use crate::table_call::TableCall;
use membership_core::protocol::{CallId, Destination, Header, Input, Message};
use membership_core::{CauseOfDeath, SiloStatus, TableErrorKind};

/// The longest time after which a commit of unknown outcome can still be applied.
const LATEST: Duration = Duration::from_secs(15);

impl Cluster {
    pub(super) fn send(
        &mut self,
        from: ProcessId,
        to: Destination,
        header: Header,
        body: Arc<Message>,
    ) {
        self.stats.sent += 1;
        self.count_sent(from, &header, &body);
        let Some(process) = self.processes.get_mut(from.0) else {
            return;
        };
        if process.held_until.is_some() {
            process
                .outbox
                .push(HeldOutput::Message { to, header, body });
            return;
        }
        self.transmit(from, to, header, body);
    }

    fn count_sent(&mut self, from: ProcessId, header: &Header, body: &Arc<Message>) {
        let bytes = if self.count_bytes {
            self.sizes.frame(header, body)
        } else {
            0
        };
        if let Some(process) = self.processes.get_mut(from.0) {
            process.sent.messages += 1;
            process.sent.bytes += bytes;
        }
    }

    /// Sends a message that leaves a process.
    pub(super) fn transmit(
        &mut self,
        from: ProcessId,
        to: Destination,
        header: Header,
        body: Arc<Message>,
    ) {
        let receiver = match to {
            Destination::Endpoint(endpoint) | Destination::Fresh(endpoint) => {
                match self.listeners.get(&endpoint) {
                    Some(id) => *id,
                    None => {
                        self.stats.dropped += 1;
                        self.refuse(from, endpoint);
                        return;
                    }
                }
            }
            Destination::Link(link) => ProcessId(usize::try_from(link.0).unwrap_or(usize::MAX)),
            other => unreachable!("the simulated network does not know {other:?}"),
        };
        let (Some(me), Some(they)) = (self.processes.get(from.0), self.processes.get(receiver.0))
        else {
            return;
        };
        let way = if they.is_running() {
            self.network.delay(me.host, they.host, &mut self.rng)
        } else {
            None
        };
        match way {
            Some(after) => {
                self.connect(from, receiver, self.now + after);
                if self.network.duplicates(&mut self.rng) {
                    self.deliver_again(from, receiver, header.clone(), body.clone());
                }
                self.queue.schedule(
                    self.now + after,
                    Event::Deliver {
                        from,
                        to: receiver,
                        header,
                        body,
                    },
                );
            }
            None => self.stats.dropped += 1,
        }
    }

    /// Sends a second copy of a message, with a delay of its own; it can be lost.
    fn deliver_again(
        &mut self,
        from: ProcessId,
        to: ProcessId,
        header: Header,
        body: Arc<Message>,
    ) {
        let (Some(me), Some(they)) = (self.processes.get(from.0), self.processes.get(to.0)) else {
            return;
        };
        if let Some(after) = self.network.delay(me.host, they.host, &mut self.rng) {
            self.stats.duplicated += 1;
            self.queue.schedule(
                self.now + after,
                Event::Deliver {
                    from,
                    to,
                    header,
                    body,
                },
            );
        }
    }

    pub(super) fn call(&mut self, process: ProcessId, call: CallId, what: TableCall) {
        if matches!(what, TableCall::Read(_)) {
            self.reads(process);
        }
        let deadline = self.now + self.config.table_call_timeout;
        let Some(caller) = self.processes.get_mut(process.0) else {
            return;
        };
        caller.asked.push((call, deadline));
        if caller.held_until.is_some() {
            self.queue.schedule(
                deadline,
                Event::GiveUp {
                    process,
                    call,
                    input: what.timed_out(call),
                },
            );
            caller.outbox.push(HeldOutput::TableCall { call, what });
            return;
        }
        self.launch(process, call, what, deadline);
    }

    /// Sends a table call. The process waits for the answer until `deadline`.
    pub(super) fn launch(
        &mut self,
        process: ProcessId,
        call: CallId,
        what: TableCall,
        deadline: VirtualTime,
    ) {
        let there = self.store.draw(&mut self.rng);
        let back = self.store.draw(&mut self.rng);
        let deadline = deadline.max(self.now);
        let (at, answer_at) = (self.now + there, self.now + there + back);
        if self.store.is_down(self.now) || self.store.cut.contains(&process) {
            self.stats.failed_calls += 1;
            let refused = self.rng.chance(0.5);
            let (when, input) = if refused {
                (
                    answer_at.min(deadline),
                    what.failed(call, TableErrorKind::Unavailable, "connection refused"),
                )
            } else {
                (deadline, what.timed_out(call))
            };
            self.answer_at(when, process, input);
            return;
        }
        if matches!(what, TableCall::Commit(_)) && self.rng.chance(self.store.unknown) {
            self.stats.unknown += 1;
            let drawn = [
                UnknownOutcome::Applied,
                UnknownOutcome::AppliedLate,
                UnknownOutcome::NotApplied,
            ];
            let kind = self
                .store
                .unknown_kind
                .unwrap_or_else(|| drawn[self.rng.below(drawn.len())]);
            let lands_at = match kind {
                UnknownOutcome::Applied => Some(at),
                UnknownOutcome::AppliedLate => {
                    Some(at + self.rng.between(Duration::from_millis(500), LATEST))
                }
                UnknownOutcome::NotApplied => None,
            };
            match kind {
                UnknownOutcome::Applied => self.stats.unknown_applied += 1,
                UnknownOutcome::AppliedLate => self.stats.unknown_late += 1,
                UnknownOutcome::NotApplied => self.stats.unknown_lost += 1,
            }
            let input = what.failed(call, TableErrorKind::OutcomeUnknown, "connection reset");
            self.answer_at(answer_at.min(deadline), process, input);
            if let Some(at) = lands_at {
                self.execute_at(at, process, call, what, None);
            }
            return;
        }
        if answer_at > deadline {
            // The caller times out. The table still executes the call, before or after that.
            self.stats.failed_calls += 1;
            self.answer_at(deadline, process, what.timed_out(call));
            self.execute_at(at, process, call, what, None);
            return;
        }
        self.execute_at(
            at,
            process,
            call,
            what,
            Some(Due {
                at: answer_at,
                deadline,
            }),
        );
    }

    fn answer_at(&mut self, at: VirtualTime, process: ProcessId, input: Input) {
        self.queue.schedule(at, Event::Answer { process, input });
    }

    fn execute_at(
        &mut self,
        at: VirtualTime,
        process: ProcessId,
        call: CallId,
        what: TableCall,
        answer: Option<Due>,
    ) {
        let event = Event::TableCall {
            process,
            call,
            what,
            answer,
        };
        self.queue.schedule(at, event);
    }

    /// Executes a call at the table.
    pub(super) fn execute_call(
        &mut self,
        process: ProcessId,
        call: CallId,
        what: TableCall,
        answer: Option<Due>,
    ) {
        if self.store.is_down(self.now) {
            if let Some(due) = answer {
                self.stats.failed_calls += 1;
                self.answer_at(due.at, process, what.timed_out(call));
            }
            return;
        }
        let mut table_changes = TableChanges::default();
        #[cfg_attr(not(test), allow(unused_mut))]
        let mut input = self
            .store
            .execute(call, &what, &mut self.rng, &mut table_changes);
        #[cfg(test)]
        if let Some(planted_bug) = &mut self.planted_bug {
            planted_bug(&mut input);
        }
        if answer.is_none()
            && matches!(
                &input,
                Input::Committed {
                    result: Ok(membership_core::CommitOutcome::Committed(_)),
                    ..
                }
            )
        {
            self.stats.unknown_landed += 1;
        }
        self.record_table_changes(&table_changes);
        let busy = self.store.serve(what.rows(&input), self.now) - self.now;
        let Some(due) = answer else { return };
        if due.at + busy > due.deadline {
            self.stats.failed_calls += 1;
            self.answer_at(due.deadline.max(self.now), process, what.timed_out(call));
        } else {
            self.stats.queued_calls += u64::from(busy > Duration::ZERO);
            self.answer_at(due.at + busy, process, input);
        }
    }

    pub(super) fn record_table_changes(&mut self, table_changes: &TableChanges) {
        self.stats.conflicts += u64::from(table_changes.conflict);
        if let Some(snapshot) = &table_changes.created {
            self.observe(&Fact::Created(snapshot));
        }
        if let Some((silo, counter)) = table_changes.heartbeat {
            let times = self.truth.heartbeats.entry(silo).or_default();
            if counter > 0 {
                *times = [Some(self.now), times[0], times[1]];
            }
        }
        for (before, after, request) in &table_changes.commits {
            self.stats.commits += 1;
            let who = request
                .committer
                .map_or_else(|| "somebody".to_owned(), |c| self.truth.name(&c));
            self.note_world(format!(
                "the table takes {who}'s {}",
                describe::commit(request, &self.truth)
            ));
            self.truth.record_pulse(after);
            for change in &request.changes {
                let Ok(silo) = change.key().parse() else {
                    continue;
                };
                self.truth.record_row(before, after, silo);
                self.truth.record_challenge(before, after, silo);
                self.truth.record_votes(before, after, silo);
                let was_dead = before
                    .rows
                    .get(&silo)
                    .is_some_and(|e| e.status == SiloStatus::Dead);
                let voted = after.rows.get(&silo).is_some_and(|e| {
                    e.death
                        .as_ref()
                        .is_some_and(|d| d.cause == CauseOfDeath::Voted)
                });
                if voted && !was_dead {
                    self.stats.voted_out += 1;
                    self.stats.voted_out_alive +=
                        u64::from(self.truth.owner(&silo).is_some_and(|l| l.ended.is_none()));
                }
            }
            self.observe(&Fact::Committed {
                before,
                after,
                request,
            });
        }
    }
}
