//! A held process: it runs and its timers fire, but it is blocked before it sends and after it
//! receives. The anomaly of the Lifeguard paper is simulated this way.

use std::time::Duration;

use crate::cluster::Cluster;
use crate::events::Event;
use crate::ground_truth::ProcessId;
use crate::process::HeldOutput;
use crate::table_call;
use membership_core::protocol::{CallId, Input};

impl Cluster {
    /// Holds a process for `time`: nothing that it sends leaves it, and no message reaches it; its
    /// timers fire. When the hold ends, held messages continue in their order. Table calls and
    /// their answers are held as well. The process times out as usual while it waits for an answer,
    /// and the held call is still sent at the end.
    pub fn hold(&mut self, silo: ProcessId, time: Duration) {
        let until = self.now + time;
        match self.processes.get_mut(silo.0) {
            Some(process) if process.is_running() => process.held_until = Some(until),
            _ => return,
        }
        self.stats.holds += 1;
        if let Some(record) = self.truth.records.get_mut(silo.0) {
            record.held.set(true, self.now);
        }
        self.note(silo, format!("is held for {:.1}s", time.as_secs_f64()));
        self.queue.schedule(until, Event::Release(silo));
    }

    /// Returns an input that may be handled now, and keeps an input that arrives at a held process.
    pub(crate) fn hold_back(
        &mut self,
        id: ProcessId,
        from: Option<ProcessId>,
        input: Input,
    ) -> Option<(Option<ProcessId>, Input)> {
        let held = |p: &&mut crate::process::Process| p.held_until.is_some() && p.is_running();
        let Some(process) = self.processes.get_mut(id.0).filter(held) else {
            return Some((from, input));
        };
        if matches!(
            input,
            Input::Start | Input::Wake | Input::Command(_) | Input::ExecutorLag(_)
        ) {
            return Some((from, input));
        }
        let waits = table_call::answered(&input)
            .and_then(|call| process.asked.iter().find(|(c, _)| *c == call).copied());
        if let (Some((call, deadline)), Some(late)) = (waits, table_call::timed_out_answer(&input))
        {
            self.queue.schedule(
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

    /// Times out a call of a held process, if it is still open.
    pub(crate) fn give_up(&mut self, id: ProcessId, call: CallId, input: Input) {
        if self
            .processes
            .get(id.0)
            .is_some_and(|p| p.asked.iter().any(|(c, _)| *c == call))
        {
            self.take(id, None, input);
        }
    }

    pub(crate) fn release(&mut self, id: ProcessId, at_once: bool) {
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
        if let Some(record) = self.truth.records.get_mut(id.0) {
            record.held.set(false, self.now);
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
                HeldOutput::Message { to, header, body } => self.transmit(id, to, header, body),
                HeldOutput::TableCall { call, what } => {
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
