//! How a process takes inputs, and how its effects are carried out.

use crate::checks::{Fact, Strange};
use crate::cluster::Cluster;
use crate::describe;
use crate::events::Event;
use crate::fingerprint;
use crate::ground_truth::ProcessId;
use crate::process::Running;
use crate::table_call::{self, TableCall};
use membership_core::protocol::{Command, Effect, Input, Notice};
use std::time::Duration;

/// A machine that takes this many inputs at one moment is in a loop.
const SPIN: u32 = 200_000;

impl Cluster {
    pub(super) fn wake(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get_mut(id.0) else {
            return;
        };
        if process.wake_at != Some(self.now) {
            return;
        }
        process.wake_at = None;
        if !process.is_running() || process.paused_until.is_some() {
            return;
        }
        if process
            .machine
            .next_wakeup()
            .is_some_and(|mono| process.when(mono) <= self.now)
        {
            self.stats.wakes += 1;
            self.feed(id, None, Input::Wake);
        } else {
            self.schedule_wake(id);
        }
    }

    /// Schedules the next wake-up of a process. A wake-up that is already scheduled for an earlier
    /// time schedules this one when it fires.
    pub(super) fn schedule_wake(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get_mut(id.0) else {
            return;
        };
        if !process.is_running() || process.paused_until.is_some() {
            return;
        }
        let Some(mono) = process.machine.next_wakeup() else {
            return;
        };
        let at = process.when(mono).max(self.now);
        if process.wake_at.is_none_or(|planned| planned > at) {
            process.wake_at = Some(at);
            self.queue.schedule(at, Event::Wake(id));
        }
    }

    /// Delivers an input to a process: now, or when it is no longer held and no longer paused.
    pub(super) fn feed(&mut self, id: ProcessId, from: Option<ProcessId>, input: Input) {
        if let Some((from, input)) = self.hold_back(id, from, input) {
            self.take(id, from, input);
        }
    }

    /// Lets a process handle an input, now or when its pause ends.
    pub(super) fn take(&mut self, id: ProcessId, from: Option<ProcessId>, input: Input) {
        let Some(process) = self.processes.get_mut(id.0) else {
            return;
        };
        if !process.is_running() {
            return;
        }
        if process.paused_until.is_some() {
            process.backlog.push((from, input));
            return;
        }
        if table_call::answered(&input).is_some_and(|call| !process.close(call)) {
            return;
        }
        if process.busy.0 == self.now {
            process.busy.1 += 1;
            if process.busy.1 > SPIN {
                self.fail(
                    "world",
                    format!("process {id} took {SPIN} inputs at one moment"),
                );
                return;
            }
        } else {
            process.busy = (self.now, 0);
        }
        self.stats.inputs += 1;
        if let Input::Command(Command::Evict { silo, .. }) = &input
            && let Some(by) = self.address(id)
        {
            self.truth.evictions.insert((*silo, by.to_string()));
        }
        self.observe(&Fact::Input {
            process: id,
            input: &input,
        });
        if let (Some(from), Input::Message { body, .. }) = (from, &input) {
            let body = body.clone();
            self.observe(&Fact::Delivered {
                from,
                to: id,
                body: &body,
            });
        }
        let (mut effects, mut strange) = (std::mem::take(&mut self.scratch), None);
        let mut missed = None;
        if let Some(process) = self.processes.get_mut(id.0) {
            if self.hash_inputs {
                self.trace.mix(
                    self.now,
                    [
                        id.0 as u64,
                        fingerprint::of(&input),
                        from.map_or(0, |f| f.0 as u64 + 1),
                    ],
                );
            }
            let clocks = process.clocks(self.now);
            let mut before = Strange::before(&*process.machine, clocks.mono, &input);
            if before.is_some() {
                // What is only waiting for time to pass happens now, without the message.
                process.machine.handle(clocks, Input::Wake, &mut effects);
                before = Strange::before(&*process.machine, clocks.mono, &input);
            }
            let own = effects.len();
            process.machine.handle(clocks, input, &mut effects);
            strange = before.map(|before| before.after(&*process.machine, &effects[own..]));
            let next = process.machine.next_wakeup();
            missed = next
                .map(|at| clocks.mono.since(at))
                .filter(|ago| *ago > Duration::ZERO);
            if let (Some(record), Some(me)) =
                (self.truth.records.get_mut(id.0), process.machine.me())
                && record.silo != Some(me)
            {
                record.silo = Some(me);
                self.truth.owners.insert(me, id);
            }
        }
        if let Some(ago) = missed {
            // It would take itself to have been paused.
            self.fail(
                "world",
                format!("process {id} wants to be woken {ago:?} ago"),
            );
        }
        if let Some(changed) = strange {
            self.stats.strange += 1;
            let changed = changed.as_deref();
            self.observe(&Fact::Strange {
                process: id,
                changed,
            });
        }
        for effect in effects.drain(..) {
            self.carry_out(id, effect);
        }
        self.scratch = effects;
        self.schedule_wake(id);
    }

    fn carry_out(&mut self, id: ProcessId, effect: Effect) {
        if let Effect::Commit { request, .. } = &effect {
            self.truth.decided.entry(request.id).or_insert(self.now);
        }
        self.observe(&Fact::Effect {
            process: id,
            effect: &effect,
        });
        if let Some(text) = describe::effect(
            &effect,
            self.trace.wants_everything(),
            &self.truth,
            &mut self.last_views,
        ) {
            self.note(id, text);
        }
        match effect {
            Effect::Send { to, header, body } => self.send(id, to, header, body),
            Effect::Initialize { call, request } => {
                self.call(id, call, TableCall::Initialize(request))
            }
            Effect::Read { call, request } => self.call(id, call, TableCall::Read(request)),
            Effect::ReadRow { call, silo } => self.call(id, call, TableCall::ReadRow(silo)),
            Effect::Commit { call, request } => self.call(id, call, TableCall::Commit(request)),
            Effect::WriteHeartbeat { call, write } => {
                self.call(id, call, TableCall::Heartbeat(write))
            }
            Effect::Publish(view) => {
                self.stats.views += 1;
                self.trace.mix(
                    self.now,
                    [view.version(), view.digest() as u64, id.0 as u64],
                );
                // What a liar announces was never in the table, and is withdrawn.
                if view.is_confirmed() || !self.truth.lies {
                    self.observe(&Fact::Published {
                        process: id,
                        view: &view,
                    });
                }
                if let Some(process) = self.processes.get_mut(id.0) {
                    process.view = Some(view);
                }
            }
            Effect::Tell(notice) => self.record_notice(id, notice),
            Effect::Observe(_) => {}
            Effect::Stop(end) => {
                if let Some(process) = self.processes.get_mut(id.0) {
                    process.termination = Some(end);
                }
                self.end(id, Running::Stopped);
            }
            unknown => self.fail("harness", format!("cannot carry out {unknown:?}")),
        }
    }

    fn record_notice(&mut self, id: ProcessId, notice: Notice) {
        let Some(process) = self.processes.get_mut(id.0) else {
            return;
        };
        if matches!(notice, Notice::ViewWithdrawn { .. }) {
            self.stats.withdrawn += 1;
        }
        if matches!(notice, Notice::LeaveBegun { .. }) && process.leaving {
            let at = self.now + process.drains_for;
            self.queue.schedule(
                at,
                Event::Command {
                    process: id,
                    command: Command::FinishLeave,
                },
            );
        }
        process.notices.push((self.now, notice));
    }

    /// Ends a process. Its address no longer has a listener, unless another process listens there.
    pub(super) fn end(&mut self, id: ProcessId, how: Running) {
        let Some(process) = self.processes.get_mut(id.0) else {
            return;
        };
        if !process.is_running() {
            return;
        }
        process.running = how;
        process.backlog.clear();
        process.outbox.clear();
        process.inbox.clear();
        process.held_until = None;
        process.hung = false;
        let endpoint = process.endpoint;
        let listened = self.listeners.get(&endpoint) == Some(&id);
        if listened {
            self.listeners.remove(&endpoint);
        }
        let was_deaf = self.deaf.remove(&id);
        if how == Running::MachineCrashed {
            if !self.listeners.contains_key(&endpoint) {
                self.silent.insert(endpoint);
            }
        } else {
            if was_deaf {
                self.silent.remove(&endpoint);
            }
            self.end_connections(id);
        }
        self.stats.stops += 1;
        if let Some(record) = self.truth.records.get_mut(id.0) {
            record.ended = Some(self.now);
            record.paused.set(false, self.now);
            record.held.set(false, self.now);
        }
    }

    pub(super) fn resume(&mut self, id: ProcessId, at_once: bool) {
        let Some(process) = self.processes.get_mut(id.0) else {
            return;
        };
        if !process.is_running()
            || process
                .paused_until
                .is_none_or(|until| until > self.now && !at_once)
        {
            return;
        }
        process.paused_until = None;
        process.hung = false;
        process.wake_at = None;
        let mut backlog = std::mem::take(&mut process.backlog);
        if let Some(record) = self.truth.records.get_mut(id.0) {
            record.paused.set(false, self.now);
        }
        self.note(id, format!("wakes up, {} inputs waiting", backlog.len()));
        // After a pause, a process may first handle its timers or its messages.
        let clock_first = self.rng.chance(0.5);
        if clock_first {
            self.feed(id, None, Input::Wake);
        }
        for (from, input) in backlog.drain(..) {
            self.take(id, from, input);
        }
        self.feed(id, None, Input::Wake);
    }
}
