//! How processes start and end.

use std::net::SocketAddr;
use std::time::Duration;

use crate::clock::{Monotonic, Skew};
use crate::cluster::Cluster;
use crate::connections::Connections;
use crate::events::Event;
use crate::ground_truth::{ProcessId, ProcessRecord};
use crate::process::{CLOCK_BEGIN, Process, Running, Sent};
use membership_core::protocol::{Command, Identity, Input, Setup};
use membership_core::{ClusterKey, InstanceId, SiloInfo};

impl Cluster {
    /// Starts silos at new addresses, within the next two seconds.
    pub fn start(&mut self, silos: usize) -> Vec<ProcessId> {
        let mut started = Vec::new();
        for _ in 0..silos {
            let delay = self.rng.between(Duration::ZERO, Duration::from_secs(2));
            let host = self.hosts();
            started.push(self.spawn(endpoint_of(host), host, true, delay));
        }
        started
    }

    /// Starts a silo at an address, now. A process that listened there keeps running, but no other
    /// process can reach it.
    pub fn start_at(&mut self, endpoint: SocketAddr) -> ProcessId {
        let host = self
            .processes
            .iter()
            .find(|p| p.endpoint == endpoint)
            .map_or_else(|| self.hosts(), |p| p.host);
        self.spawn(endpoint, host, true, Duration::ZERO)
    }

    /// Starts a silo on another host that advertises the address of a running silo. Every dial of
    /// that address, its own included, reaches the first silo.
    pub fn start_behind(&mut self, first: ProcessId) -> ProcessId {
        let Some(endpoint) = self.processes.get(first.0).map(|p| p.endpoint) else {
            return first;
        };
        let host = self.hosts();
        self.spawn(endpoint, host, false, Duration::ZERO)
    }

    /// Starts a new process at the address of an earlier one, which is killed if it still runs.
    pub fn restart(&mut self, silo: ProcessId) -> ProcessId {
        self.kill(silo);
        self.take_over(silo)
    }

    /// Starts a new process at the address of an earlier one, which keeps running but becomes
    /// unreachable.
    pub fn take_over(&mut self, silo: ProcessId) -> ProcessId {
        let Some(endpoint) = self.processes.get(silo.0).map(|p| p.endpoint) else {
            return silo;
        };
        self.stats.restarts += 1;
        // A process that has not started yet will not listen there either.
        for (process, record) in self.processes.iter().zip(&mut self.truth.records) {
            if process.is_running() && process.endpoint == endpoint {
                record.hidden = true;
            }
        }
        let new = self.start_at(endpoint);
        self.inherit_clocks(silo, new);
        new
    }

    fn hosts(&self) -> usize {
        self.processes.iter().map(|p| p.host + 1).max().unwrap_or(0)
    }

    fn spawn(
        &mut self,
        endpoint: SocketAddr,
        host: usize,
        listens: bool,
        delay: Duration,
    ) -> ProcessId {
        let id = ProcessId(self.processes.len());
        let instance = InstanceId::new(self.rng.next_u128());
        let earlier = self.processes.iter().filter(|p| p.host == host).count();
        let name = if earlier == 0 {
            format!("s{host}")
        } else {
            format!("s{host}{}", "'".repeat(earlier))
        };
        let mut info = SiloInfo::named(name.clone());
        info.host_name = format!("host-{host}");
        if let Some(name) = &self.zone_names {
            info.zone = name(host);
        }
        let identity = Identity::new(self.name.clone(), endpoint, instance, info);
        let seed = self.rng.next_u64();
        let setup = Setup::new(
            identity,
            self.config.clone(),
            self.limits,
            seed,
            ClusterKey::new([7; 32]),
        )
        .with_reads(membership_core::Recency::Linearizable);
        let machine = (self.factory)(setup);
        self.processes.push(Process {
            machine,
            running: Running::Yes,
            host,
            endpoint,
            mono: Monotonic::beginning(CLOCK_BEGIN + self.rng.between(Duration::ZERO, CLOCK_BEGIN)),
            skew: Skew::default(),
            paused_until: None,
            hung: false,
            backlog: Vec::new(),
            stalls_again: None,
            starving: None,
            held_until: None,
            outbox: Vec::new(),
            inbox: Vec::new(),
            asked: Vec::new(),
            sent: Sent::default(),
            connections: Connections::default(),
            wake_at: None,
            view: None,
            notices: Vec::new(),
            termination: None,
            leaving: false,
            drains_for: Duration::from_millis(500),
            busy: (Duration::ZERO, 0),
        });
        self.truth.records.push(ProcessRecord {
            hidden: !listens,
            ..ProcessRecord::new(name, host, endpoint, self.now + delay)
        });
        self.stats.starts += 1;
        if earlier == 0 {
            self.join_split(host);
            self.join_cuts(host);
        }
        self.note(id, "starts".to_owned());
        self.queue.schedule(
            self.now + delay,
            Event::Answer {
                process: id,
                input: Input::Start,
            },
        );
        id
    }

    /// Makes a process listen at its address, unless another host owns it.
    pub(super) fn listen(&mut self, id: ProcessId) {
        let (Some(process), Some(record)) =
            (self.processes.get(id.0), self.truth.records.get(id.0))
        else {
            return;
        };
        if process.is_running() && !record.hidden && !self.deaf.contains(&id) {
            self.silent.remove(&process.endpoint);
            self.listeners.insert(process.endpoint, id);
        }
    }

    /// Kills a process; its machine keeps running. Messages that it sent are still delivered. Unless
    /// the cluster was built without [`connection_refused`](crate::Builder::connection_refused), its
    /// machine tells those who were connected with it, and refuses those who dial it later.
    pub fn kill(&mut self, silo: ProcessId) {
        if !self.is_running(silo) {
            return;
        }
        self.stats.kills += 1;
        self.note(silo, "is killed".to_owned());
        self.end(silo, Running::Killed);
    }

    /// Crashes the machine of a process: nobody is told, and messages to its address vanish until
    /// another process listens there. Messages that it sent are still delivered.
    pub fn crash_machine(&mut self, silo: ProcessId) {
        if !self.is_running(silo) {
            return;
        }
        self.stats.kills += 1;
        self.stats.machine_crashes += 1;
        self.note(silo, "and its machine crash".to_owned());
        self.end(silo, Running::MachineCrashed);
    }

    /// Pauses a process for `time`: it neither sends nor receives, and no timer fires. Inputs wait
    /// until it resumes.
    pub fn pause(&mut self, silo: ProcessId, time: Duration) {
        let until = self.now + time;
        match self.processes.get_mut(silo.0) {
            Some(process) if process.is_running() => process.paused_until = Some(until),
            _ => return,
        }
        self.stats.pauses += 1;
        if let Some(record) = self.truth.records.get_mut(silo.0) {
            record.paused.set(true, self.now);
        }
        self.note(silo, format!("is paused for {:.1}s", time.as_secs_f64()));
        self.queue.schedule(until, Event::Resume(silo));
    }

    /// The application leaves: it requests the leave, drains for half a second once the silo is
    /// ShuttingDown, and finishes.
    pub fn leave(&mut self, silo: ProcessId) {
        match self.processes.get_mut(silo.0) {
            Some(process) if process.is_running() && !process.leaving => process.leaving = true,
            _ => return,
        }
        self.stats.leaves += 1;
        self.note(silo, "is asked to leave".to_owned());
        self.queue.schedule(
            self.now,
            Event::Command {
                process: silo,
                command: Command::BeginLeave,
            },
        );
    }

    /// Sends any other command of the application.
    pub fn command(&mut self, silo: ProcessId, command: Command) {
        self.note(silo, format!("is told {command:?}"));
        self.queue.schedule(
            self.now,
            Event::Command {
                process: silo,
                command,
            },
        );
    }

    /// Injects an input into a process, now. The answer to a table call that it does not wait for
    /// is ignored.
    pub fn inject(&mut self, silo: ProcessId, input: Input) {
        self.queue.schedule(
            self.now,
            Event::Answer {
                process: silo,
                input,
            },
        );
    }
}

fn endpoint_of(host: usize) -> SocketAddr {
    let byte = |n: usize| u8::try_from(n % 250).unwrap_or(0);
    SocketAddr::from((
        [10, byte(host / 62_500), byte(host / 250), byte(host) + 1],
        7100,
    ))
}
