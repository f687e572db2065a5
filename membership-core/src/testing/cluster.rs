//! The virtual world itself: it lets time pass, one event after another, and shows every fact to the checkers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::builder::Builder;
use super::checks::{Check, Fact, Load};
use super::circumstances::{Circumstances, ProcessId, VirtualTime};
use super::describe;
use super::dice::Dice;
use super::events::{Agenda, Event};
use super::faults::Flap;
use super::fingerprint;
use super::machine::MachineFactory;
use super::network::{Latency, Network};
use super::process::{Process, Running};
use super::size::Sizes;
use super::stats::Stats;
use super::store::{self, Call, Store};
use super::trace::Trace;
use super::violation::Violation;
use crate::protocol::{Command, Effect, Input, LinkId, Notice};
use crate::{ClusterName, Config, TableLimits};

/// So many inputs at one moment: the machine spins.
const SPIN: u32 = 200_000;
/// Lines of the trace in a violation.
const SHOWN: usize = 60;

/// A cluster in virtual time: every silo, the network and the table in one thread, decided by a seed.
///
/// See the [module](super) for an example.
pub struct Cluster {
    pub(super) seed: u64,
    pub(super) dice: Dice,
    pub(super) now: VirtualTime,
    pub(super) name: ClusterName,
    pub(super) config: Config,
    pub(super) limits: TableLimits,
    pub(super) refuse: bool,
    pub(super) agenda: Agenda,
    pub(super) processes: Vec<Process>,
    pub(super) listeners: BTreeMap<SocketAddr, ProcessId>,
    pub(super) network: Network,
    pub(super) store: Store,
    pub(super) truth: Circumstances,
    pub(super) checks: Vec<Box<dyn Check>>,
    pub(super) trace: Trace,
    pub(super) stats: Stats,
    pub(super) violation: Option<Violation>,
    pub(super) factory: MachineFactory,
    pub(super) scratch: Vec<Effect>,
    pub(super) load: Option<Load>,
    pub(super) told: describe::Told,
    /// Links that open and shut, by the number they were given.
    pub(super) flaps: BTreeMap<u64, Flap>,
    pub(super) flaps_so_far: u64,
    /// Pairs of zones between which nothing gets through.
    pub(super) cuts: Vec<(usize, usize)>,
    pub(super) usual: Usual,
    pub(super) count_bytes: bool,
    pub(super) sizes: Sizes,
    /// A planted bug: what the table really answers.
    #[cfg(test)]
    pub(super) lie: Option<Lie>,
}

/// Changes what a table answers.
#[cfg(test)]
pub(super) type Lie = Box<dyn FnMut(&mut Input)>;

/// How long things take when nothing is wrong.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usual {
    pub latency: Latency,
    pub table: (Duration, Duration),
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let version = self.store.truth.as_ref().map(crate::Snapshot::version);
        let mut f = f.debug_struct("Cluster");
        f.field("seed", &self.seed)
            .field("now", &self.now)
            .field("running", &self.running().len())
            .field("version", &version);
        f.finish_non_exhaustive()
    }
}

impl Cluster {
    /// How a cluster is put together.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Lets virtual time pass.
    ///
    /// # Errors
    /// The first invariant that does not hold; from then on the world stands still.
    pub fn run_for(&mut self, time: Duration) -> Result<(), Violation> {
        let until = self.now + time;
        self.run_to(until, |_| false).map(|_| ())
    }

    /// Lets virtual time pass until a condition holds, but at most so long. Says whether it held. The condition is looked at after
    /// every event that may have changed something that a silo publishes, and at the end.
    ///
    /// # Errors
    /// As for [`run_for`](Self::run_for).
    pub fn run_until(
        &mut self,
        at_most: Duration,
        condition: impl FnMut(&Self) -> bool,
    ) -> Result<bool, Violation> {
        let until = self.now + at_most;
        self.run_to(until, condition)
    }

    fn run_to(
        &mut self,
        until: VirtualTime,
        mut condition: impl FnMut(&Self) -> bool,
    ) -> Result<bool, Violation> {
        let mut looked_at = None;
        loop {
            if let Some(violation) = &self.violation {
                return Err(violation.clone());
            }
            let changes = (
                self.stats.views,
                self.stats.commits,
                self.stats.starts,
                self.stats.kills,
                self.stats.stops,
            );
            if looked_at != Some(changes) {
                looked_at = Some(changes);
                if condition(self) {
                    return Ok(true);
                }
            }
            let Some((at, event)) = self.agenda.next(until) else {
                break;
            };
            self.set_time(at);
            self.happen(event);
        }
        self.set_time(until);
        Ok(condition(self))
    }

    fn set_time(&mut self, now: VirtualTime) {
        self.now = self.now.max(now);
        self.truth.now = self.now;
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Wake(id) => self.wake(id),
            Event::Deliver {
                from,
                to,
                header,
                body,
            } => {
                self.feed(
                    to,
                    Some(from),
                    Input::Message {
                        link: LinkId(from.0 as u64),
                        header,
                        body,
                    },
                );
            }
            Event::Undeliverable { to, endpoint } => {
                self.feed(
                    to,
                    None,
                    Input::SendFailed {
                        to: endpoint,
                        reason: "connection refused".to_owned(),
                    },
                );
            }
            Event::Ask {
                process,
                call,
                what,
                answer,
            } => self.ask(process, call, what, answer),
            Event::Answer { process, input } => {
                if matches!(input, Input::Start) {
                    self.listen(process);
                }
                self.feed(process, None, input);
            }
            Event::GiveUp {
                process,
                call,
                input,
            } => self.give_up(process, call, input),
            Event::Wish { process, command } => {
                if command == Command::BeginLeave
                    && let Some(life) = self.truth.lives.get_mut(process.0)
                {
                    life.leaving.get_or_insert(self.now);
                }
                self.feed(process, None, Input::Command(command));
            }
            Event::Resume(id) => self.resume(id, false),
            Event::Release(id) => self.release(id, false),
            Event::Flap(number) => self.flap_on(number),
            Event::Chatter(id) => self.chatter(id),
            Event::TableUp => self.table_up(false),
            Event::NetworkUp => self.network_up(),
        }
    }

    fn wake(&mut self, id: ProcessId) {
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
            self.plan_wake(id);
        }
    }

    /// Plans the next wake-up of a process. One that is planned already for an earlier time finds out then.
    pub(super) fn plan_wake(&mut self, id: ProcessId) {
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
            self.agenda.plan(at, Event::Wake(id));
        }
    }

    /// An input gets to a process: it takes it now, or when it is not held any more and its pause ends.
    pub(super) fn feed(&mut self, id: ProcessId, from: Option<ProcessId>, input: Input) {
        if let Some((from, input)) = self.hold_back(id, from, input) {
            self.take(id, from, input);
        }
    }

    /// A process takes an input, now or when its pause ends.
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
        if store::answers(&input).is_some_and(|call| !process.close(call)) {
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
        self.show(&Fact::Takes {
            process: id,
            input: &input,
        });
        if let (Some(from), Input::Message { body, .. }) = (from, &input) {
            let body = body.clone();
            self.show(&Fact::Delivered {
                from,
                to: id,
                body: &body,
            });
        }
        let mut effects = std::mem::take(&mut self.scratch);
        if let Some(process) = self.processes.get_mut(id.0) {
            self.trace.mix(
                self.now,
                [
                    id.0 as u64,
                    fingerprint::of(&input),
                    from.map_or(0, |f| f.0 as u64 + 1),
                ],
            );
            let clocks = process.clocks(self.now);
            process.machine.handle(clocks, input, &mut effects);
            if let (Some(life), Some(me)) = (self.truth.lives.get_mut(id.0), process.machine.me())
                && life.silo != Some(me)
            {
                life.silo = Some(me);
                self.truth.owners.insert(me, id);
            }
        }
        for effect in effects.drain(..) {
            self.carry_out(id, effect);
        }
        self.scratch = effects;
        self.plan_wake(id);
    }

    fn carry_out(&mut self, id: ProcessId, effect: Effect) {
        if let Effect::Commit { request, .. } = &effect {
            self.truth.decided.entry(request.id).or_insert(self.now);
        }
        self.show(&Fact::Wants {
            process: id,
            effect: &effect,
        });
        if let Some(text) = describe::effect(
            &effect,
            self.trace.wants_everything(),
            &self.truth,
            &mut self.told,
        ) {
            self.note(id, text);
        }
        match effect {
            Effect::Send { to, header, body } => self.send(id, to, header, body),
            Effect::Initialize { call, request } => self.call(id, call, Call::Initialize(request)),
            Effect::Read { call, request } => self.call(id, call, Call::Read(request)),
            Effect::Commit { call, request } => self.call(id, call, Call::Commit(request)),
            Effect::WriteHeartbeat { call, write } => self.call(id, call, Call::Beat(write)),
            Effect::Publish(view) => {
                self.stats.views += 1;
                self.trace.mix(
                    self.now,
                    [view.version(), view.digest() as u64, id.0 as u64],
                );
                self.show(&Fact::Published {
                    process: id,
                    view: &view,
                });
                if let Some(process) = self.processes.get_mut(id.0) {
                    process.view = Some(view);
                }
            }
            Effect::Tell(notice) => self.told(id, notice),
            Effect::Observe(_) => {}
            Effect::Stop(end) => {
                if let Some(process) = self.processes.get_mut(id.0) {
                    process.termination = Some(end);
                }
                self.end(id, Running::Stopped);
            }
        }
    }

    fn told(&mut self, id: ProcessId, notice: Notice) {
        let Some(process) = self.processes.get_mut(id.0) else {
            return;
        };
        if matches!(notice, Notice::LeaveBegun { .. }) && process.leaving {
            let at = self.now + process.drains_for;
            self.agenda.plan(
                at,
                Event::Wish {
                    process: id,
                    command: Command::FinishLeave,
                },
            );
        }
        process.notices.push((self.now, notice));
    }

    /// A process is no more: nobody listens at its address, unless somebody else already does.
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
        if self.listeners.get(&process.endpoint) == Some(&id) {
            self.listeners.remove(&process.endpoint);
        }
        self.stats.stops += 1;
        if let Some(life) = self.truth.lives.get_mut(id.0) {
            life.ended = Some(self.now);
            life.paused.set(false, self.now);
            life.held.set(false, self.now);
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
        if let Some(life) = self.truth.lives.get_mut(id.0) {
            life.paused.set(false, self.now);
        }
        self.note(id, format!("wakes up, {} inputs waiting", backlog.len()));
        // What a process notices first after a pause, its clock or its mail, is a matter of luck.
        let clock_first = self.dice.chance(0.5);
        if clock_first {
            self.feed(id, None, Input::Wake);
        }
        for (from, input) in backlog.drain(..) {
            self.take(id, from, input);
        }
        self.feed(id, None, Input::Wake);
    }

    pub(super) fn show(&mut self, fact: &Fact<'_>) {
        if let Some(load) = &mut self.load {
            // It only measures.
            let _ = load.see(fact, &self.truth);
        }
        let broken = self.checks.iter_mut().find_map(|c| {
            c.see(fact, &self.truth)
                .err()
                .map(|what| (c.invariant(), what))
        });
        if let Some((invariant, what)) = broken {
            self.fail(invariant, what);
        }
        if let Fact::Committed { .. } = fact {
            self.count_judged();
        }
    }

    /// What is judged in rare circumstances is judged at commits.
    fn count_judged(&mut self) {
        for check in &self.checks {
            match check.invariant() {
                "P6" => self.stats.outage_commits = check.judged(),
                "P10" => self.stats.deaths_judged = check.judged(),
                "P11" => self.stats.splits_judged = check.judged(),
                _ => {}
            }
        }
    }

    pub(super) fn fail(&mut self, invariant: &'static str, what: String) {
        if self.violation.is_none() {
            self.violation = Some(Violation::new(
                self.seed,
                invariant,
                what,
                self.now,
                self.trace.tail(SHOWN),
            ));
        }
    }

    pub(super) fn note(&mut self, id: ProcessId, what: String) {
        let who = self.truth.lives.get(id.0).map_or("?", |l| l.name.as_str());
        self.trace.line(self.now, who, what);
    }

    pub(super) fn note_world(&mut self, what: String) {
        self.trace.line(self.now, "world", what);
    }
}
