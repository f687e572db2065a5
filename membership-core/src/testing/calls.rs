//! What happens to the messages and table calls of a process on their way.

use std::sync::Arc;
use std::time::Duration;

use super::checks::Fact;
use super::circumstances::{ProcessId, VirtualTime};
use super::cluster::Cluster;
use super::describe;
use super::events::{Due, Event};
use super::process::Held;
use super::store::{Call, Happened, UnknownOutcome};
use crate::protocol::{CallId, Destination, Header, Input, Message};
use crate::{CauseOfDeath, SiloStatus, TableErrorKind};

/// How late a commit of unknown outcome may still land.
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
            process.outbox.push(Held::Message { to, header, body });
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

    /// A message leaves a process.
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
                        if self.refuse {
                            let at = self.now + self.network.latency().draw(&mut self.dice) * 2;
                            self.agenda
                                .plan(at, Event::Undeliverable { to: from, endpoint });
                        }
                        return;
                    }
                }
            }
            Destination::Link(link) => ProcessId(usize::try_from(link.0).unwrap_or(usize::MAX)),
        };
        let (Some(me), Some(they)) = (self.processes.get(from.0), self.processes.get(receiver.0))
        else {
            return;
        };
        let way = if they.is_running() {
            self.network.carry(me.place, they.place, &mut self.dice)
        } else {
            None
        };
        match way {
            Some(after) => {
                if self.network.duplicates(&mut self.dice) {
                    self.deliver_again(from, receiver, header.clone(), body.clone());
                }
                self.agenda.plan(
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

    /// A second copy of a message, with a fate of its own.
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
        if let Some(after) = self.network.carry(me.place, they.place, &mut self.dice) {
            self.stats.duplicated += 1;
            self.agenda.plan(
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

    pub(super) fn call(&mut self, process: ProcessId, call: CallId, what: Call) {
        let deadline = self.now + self.config.table_call_timeout;
        let Some(caller) = self.processes.get_mut(process.0) else {
            return;
        };
        caller.asked.push((call, deadline));
        if caller.held_until.is_some() {
            self.agenda.plan(
                deadline,
                Event::GiveUp {
                    process,
                    call,
                    input: what.timed_out(call),
                },
            );
            caller.outbox.push(Held::Call { call, what });
            return;
        }
        self.launch(process, call, what, deadline);
    }

    /// A table call leaves a process, which waits for the answer until `deadline`.
    pub(super) fn launch(
        &mut self,
        process: ProcessId,
        call: CallId,
        what: Call,
        deadline: VirtualTime,
    ) {
        let there = self.store.draw(&mut self.dice);
        let back = self.store.draw(&mut self.dice);
        let deadline = deadline.max(self.now);
        let (at, answer_at) = (self.now + there, self.now + there + back);
        if self.store.is_down(self.now) || self.store.cut.contains(&process) {
            self.stats.failed_calls += 1;
            let refused = self.dice.chance(0.5);
            let (when, input) = if refused {
                (
                    answer_at.min(deadline),
                    what.failed(call, TableErrorKind::Unavailable, "connection refused"),
                )
            } else {
                (deadline, what.timed_out(call))
            };
            self.agenda.plan(when, Event::Answer { process, input });
            return;
        }
        if matches!(what, Call::Commit(_)) && self.dice.chance(self.store.unknown) {
            self.stats.unknown += 1;
            let drawn = [
                UnknownOutcome::Applied,
                UnknownOutcome::AppliedLate,
                UnknownOutcome::NotApplied,
            ];
            let kind = self
                .store
                .unknown_kind
                .unwrap_or_else(|| drawn[self.dice.below(drawn.len())]);
            let lands_at = match kind {
                UnknownOutcome::Applied => Some(at),
                UnknownOutcome::AppliedLate => {
                    Some(at + self.dice.between(Duration::from_millis(500), LATEST))
                }
                UnknownOutcome::NotApplied => None,
            };
            match kind {
                UnknownOutcome::Applied => self.stats.unknown_applied += 1,
                UnknownOutcome::AppliedLate => self.stats.unknown_late += 1,
                UnknownOutcome::NotApplied => self.stats.unknown_lost += 1,
            }
            let input = what.failed(call, TableErrorKind::OutcomeUnknown, "connection reset");
            self.agenda
                .plan(answer_at.min(deadline), Event::Answer { process, input });
            if let Some(at) = lands_at {
                self.agenda.plan(
                    at,
                    Event::Ask {
                        process,
                        call,
                        what,
                        answer: None,
                    },
                );
            }
            return;
        }
        if answer_at > deadline {
            // The process gives up; the call may still be carried out, before or after that.
            self.stats.failed_calls += 1;
            self.agenda.plan(
                deadline,
                Event::Answer {
                    process,
                    input: what.timed_out(call),
                },
            );
            self.agenda.plan(
                at,
                Event::Ask {
                    process,
                    call,
                    what,
                    answer: None,
                },
            );
            return;
        }
        self.agenda.plan(
            at,
            Event::Ask {
                process,
                call,
                what,
                answer: Some(Due {
                    at: answer_at,
                    deadline,
                }),
            },
        );
    }

    /// A call is at the table.
    pub(super) fn ask(
        &mut self,
        process: ProcessId,
        call: CallId,
        what: Call,
        answer: Option<Due>,
    ) {
        if self.store.is_down(self.now) {
            if let Some(due) = answer {
                self.stats.failed_calls += 1;
                self.agenda.plan(
                    due.at,
                    Event::Answer {
                        process,
                        input: what.timed_out(call),
                    },
                );
            }
            return;
        }
        let mut happened = Happened::default();
        #[cfg_attr(not(test), allow(unused_mut))]
        let mut input = self
            .store
            .perform(call, &what, &mut self.dice, &mut happened);
        #[cfg(test)]
        if let Some(lie) = &mut self.lie {
            lie(&mut input);
        }
        if answer.is_none()
            && matches!(
                &input,
                Input::Committed {
                    result: Ok(crate::CommitOutcome::Committed(_)),
                    ..
                }
            )
        {
            self.stats.unknown_landed += 1;
        }
        self.tell_table(&happened);
        let busy = self.store.serve(what.rows(&input), self.now) - self.now;
        let Some(due) = answer else { return };
        if due.at + busy > due.deadline {
            self.stats.failed_calls += 1;
            self.agenda.plan(
                due.deadline.max(self.now),
                Event::Answer {
                    process,
                    input: what.timed_out(call),
                },
            );
        } else {
            self.stats.queued_calls += u64::from(busy > Duration::ZERO);
            self.agenda
                .plan(due.at + busy, Event::Answer { process, input });
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
                *beats = [Some(self.now), beats[0], beats[1]];
            }
        }
        for (before, after, request) in &happened.commits {
            self.stats.commits += 1;
            let who = request
                .committer
                .map_or_else(|| "somebody".to_owned(), |c| self.truth.name(&c));
            self.note_world(format!(
                "the table takes {who}'s {}",
                describe::commit(request, &self.truth)
            ));
            for change in &request.changes {
                let Ok(silo) = change.key().parse() else {
                    continue;
                };
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
            self.show(&Fact::Committed {
                before,
                after,
                request,
            });
        }
    }
}
