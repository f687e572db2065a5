//! A process that runs, but that nothing gets out of and nothing gets into: blocked before it sends and after it receives. Its timers fire.
//! This is how the anomaly of the Lifeguard paper is staged.

use std::time::Duration;

use crate::protocol::{CallId, Input};
use crate::testing::circumstances::ProcessId;
use crate::testing::cluster::Cluster;
use crate::testing::events::Event;
use crate::testing::process::Held;
use crate::testing::store;

impl Cluster {
    /// For so long nothing that this process sends leaves it, and nothing that arrives is taken in; its timers run. What was held goes on,
    /// in order, when the time is over. Calls to the table and their answers are held as well; the process gives up waiting for an answer
    /// as ever, after the timeout of table calls, and such a call still goes out in the end.
    pub fn hold(&mut self, silo: ProcessId, time: Duration) {
        let until = self.now + time;
        match self.processes.get_mut(silo.0) {
            Some(process) if process.is_running() => process.held_until = Some(until),
            _ => return,
        }
        self.stats.holds += 1;
        if let Some(life) = self.truth.lives.get_mut(silo.0) {
            life.held.set(true, self.now);
        }
        self.note(silo, format!("is held for {:.1}s", time.as_secs_f64()));
        self.agenda.plan(until, Event::Release(silo));
    }

    /// Gives an input back that may be taken now, and keeps one that arrives at a process that is held.
    pub(in crate::testing) fn hold_back(
        &mut self,
        id: ProcessId,
        from: Option<ProcessId>,
        input: Input,
    ) -> Option<(Option<ProcessId>, Input)> {
        let held =
            |p: &&mut crate::testing::process::Process| p.held_until.is_some() && p.is_running();
        let Some(process) = self.processes.get_mut(id.0).filter(held) else {
            return Some((from, input));
        };
        if matches!(
            input,
            Input::Start | Input::Wake | Input::Command(_) | Input::ExecutorLag(_)
        ) {
            return Some((from, input));
        }
        let waits = store::answers(&input)
            .and_then(|call| process.asked.iter().find(|(c, _)| *c == call).copied());
        if let (Some((call, deadline)), Some(late)) = (waits, store::given_up(&input)) {
            self.agenda.plan(
                deadline,
                Event::GiveUp {
                    process: id,
                    call,
                    input: late,
                },
            );
        }
        process.inbox.push((from, input));
        None
    }

    /// A process has waited long enough for an answer that is held, or that its call never went out for.
    pub(in crate::testing) fn give_up(&mut self, id: ProcessId, call: CallId, input: Input) {
        if self
            .processes
            .get(id.0)
            .is_some_and(|p| p.asked.iter().any(|(c, _)| *c == call))
        {
            self.take(id, None, input);
        }
    }

    pub(in crate::testing) fn release(&mut self, id: ProcessId, at_once: bool) {
        let Some(process) = self.processes.get_mut(id.0) else {
            return;
        };
        if !process.is_running()
            || process
                .held_until
                .is_none_or(|until| until > self.now && !at_once)
        {
            return;
        }
        process.held_until = None;
        let (outbox, inbox) = (
            std::mem::take(&mut process.outbox),
            std::mem::take(&mut process.inbox),
        );
        if let Some(life) = self.truth.lives.get_mut(id.0) {
            life.held.set(false, self.now);
        }
        self.note(
            id,
            format!(
                "is held no more: {} things go out, {} come in",
                outbox.len(),
                inbox.len()
            ),
        );
        for held in outbox {
            match held {
                Held::Message { to, header, body } => self.transmit(id, to, header, body),
                Held::Call { call, what } => {
                    let deadline = self
                        .processes
                        .get(id.0)
                        .and_then(|p| p.asked.iter().find(|(c, _)| *c == call))
                        .map(|(_, d)| *d);
                    self.launch(id, call, what, deadline.unwrap_or(self.now));
                }
            }
        }
        for (from, input) in inbox {
            self.take(id, from, input);
        }
    }
}
