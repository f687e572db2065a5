//! Processes that stop and go: two stalls in a row, and an executor that starves in bursts.

use std::time::Duration;

use crate::clock::VirtualTime;
use crate::cluster::Cluster;
use crate::events::Event;
use crate::ground_truth::ProcessId;
use membership_core::protocol::Input;

/// A process that reads nothing within this time after its first stall is stalled again anyway.
const AT_LATEST: Duration = Duration::from_millis(500);
/// Less than a table call takes, so that the second stall comes during the read.
const INTO_THE_READ: Duration = Duration::from_millis(1);
/// A starving executor runs for up to this long between two stalls.
const RUNS: Duration = Duration::from_millis(1_500);

/// An executor that starves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Starving {
    until: VirtualTime,
    most: Duration,
}

impl Cluster {
    /// Pauses a process twice: for `first`, and again for `second` as soon as it reads the table
    /// after the first pause, before the answer arrives (or half a second after the pause, if it
    /// does not read).
    pub fn stutter(&mut self, silo: ProcessId, first: Duration, second: Duration) {
        self.pause(silo, first);
        let Some(process) = self.processes.get_mut(silo.0) else {
            return;
        };
        if !process.is_running() {
            return;
        }
        process.stalls_again = Some(second);
        self.stats.stutters += 1;
        self.queue
            .schedule(self.now + first + AT_LATEST, Event::StallAgain(silo));
    }

    /// A stuttering process that reads the table stalls again while the read is under way.
    pub(crate) fn reads(&mut self, silo: ProcessId) {
        let waits = |p: &crate::process::Process| p.stalls_again.is_some();
        if self.processes.get(silo.0).is_some_and(waits) {
            self.queue
                .schedule(self.now + INTO_THE_READ, Event::StallAgain(silo));
        }
    }

    pub(crate) fn stall_again(&mut self, silo: ProcessId) {
        let Some(process) = self.processes.get_mut(silo.0) else {
            return;
        };
        if process.paused_until.is_some() {
            return;
        }
        if let Some(time) = process.stalls_again.take() {
            self.pause(silo, time);
        }
    }

    /// Starves the executor of a process in bursts, for `time`: it stalls for up to `most`, runs for
    /// up to 1.5 s, and so on. After each stall its timers are late, and it is told by how much
    /// ([`Input::ExecutorLag`]).
    pub fn starve(&mut self, silo: ProcessId, most: Duration, time: Duration) {
        let until = self.now + time;
        let Some(process) = self.processes.get_mut(silo.0) else {
            return;
        };
        let already = process.starving.replace(Starving { until, most }).is_some();
        self.stats.starvations += 1;
        self.note(
            silo,
            format!(
                "has an executor that stalls for up to {:.1}s",
                most.as_secs_f64()
            ),
        );
        if !already {
            self.queue.schedule(self.now, Event::Starve(silo));
        }
    }

    /// The next stall of a starving executor, if it still starves.
    pub(crate) fn stall_executor(&mut self, silo: ProcessId) {
        let Some(process) = self.processes.get_mut(silo.0) else {
            return;
        };
        let Some(Starving { until, most }) = process.starving else {
            return;
        };
        if until <= self.now || !process.is_running() {
            process.starving = None;
            return;
        }
        let busy = process.paused_until.is_some();
        let stall = self.rng.between(most / 4, most);
        let runs = self.rng.between(Duration::ZERO, RUNS);
        if !busy {
            self.pause(silo, stall);
            // It arrives during the stall, so the process handles it afterwards.
            let input = Input::ExecutorLag(stall);
            let process = silo;
            self.queue
                .schedule(self.now, Event::Answer { process, input });
        }
        self.queue
            .schedule(self.now + stall + runs, Event::Starve(silo));
    }
}
