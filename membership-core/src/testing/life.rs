//! How processes begin and end.

use std::net::SocketAddr;
use std::time::Duration;

use super::circumstances::{Life, ProcessId, Spell};
use super::clock::{Monotonic, Skew};
use super::cluster::Cluster;
use super::events::Event;
use super::process::{CLOCK_BEGIN, Process, Running, Sent};
use crate::InstanceId;
use crate::protocol::{Command, Identity, Input, Setup};

impl Cluster {
    /// Starts so many silos at new addresses, within the next two seconds.
    pub fn start(&mut self, silos: usize) -> Vec<ProcessId> {
        let mut started = Vec::new();
        for _ in 0..silos {
            let delay = self.dice.between(Duration::ZERO, Duration::from_secs(2));
            let place = self.places();
            started.push(self.spawn(endpoint_of(place), place, true, delay));
        }
        started
    }

    /// Starts a silo at an address, now. Whoever listened there goes on running, but nobody reaches it any more.
    pub fn start_at(&mut self, endpoint: SocketAddr) -> ProcessId {
        let place = self
            .processes
            .iter()
            .find(|p| p.endpoint == endpoint)
            .map_or_else(|| self.places(), |p| p.place);
        self.spawn(endpoint, place, true, Duration::ZERO)
    }

    /// Starts a silo on another machine that advertises the address of a running one: whoever dials it, itself too, reaches the first.
    pub fn start_behind(&mut self, first: ProcessId) -> ProcessId {
        let Some(endpoint) = self.processes.get(first.0).map(|p| p.endpoint) else {
            return first;
        };
        let place = self.places();
        self.spawn(endpoint, place, false, Duration::ZERO)
    }

    /// Starts a new process at the address of an earlier one, which is killed if it still runs.
    pub fn restart(&mut self, silo: ProcessId) -> ProcessId {
        self.kill(silo);
        self.take_over(silo)
    }

    /// Starts a new process at the address of an earlier one that goes on running, unreachable.
    pub fn take_over(&mut self, silo: ProcessId) -> ProcessId {
        let Some(endpoint) = self.processes.get(silo.0).map(|p| p.endpoint) else {
            return silo;
        };
        self.stats.restarts += 1;
        // One that has yet to begin, too: it will not listen there any more.
        for (process, life) in self.processes.iter().zip(&mut self.truth.lives) {
            if process.is_running() && process.endpoint == endpoint {
                life.hidden = true;
            }
        }
        let new = self.start_at(endpoint);
        self.inherit_clocks(silo, new);
        new
    }

    fn places(&self) -> usize {
        self.processes
            .iter()
            .map(|p| p.place + 1)
            .max()
            .unwrap_or(0)
    }

    fn spawn(
        &mut self,
        endpoint: SocketAddr,
        place: usize,
        listens: bool,
        delay: Duration,
    ) -> ProcessId {
        let id = ProcessId(self.processes.len());
        let instance = InstanceId::new(self.dice.name());
        let earlier = self.processes.iter().filter(|p| p.place == place).count();
        let name = if earlier == 0 {
            format!("s{place}")
        } else {
            format!("s{place}{}", "'".repeat(earlier))
        };
        let identity = Identity {
            cluster: self.name.clone(),
            advertise: endpoint,
            instance,
            gateway_port: 0,
            host_name: format!("host-{place}"),
            silo_name: name.clone(),
            role: String::new(),
            zone: String::new(),
            metadata: std::collections::BTreeMap::new(),
        };
        let setup = Setup {
            identity,
            config: self.config.clone(),
            limits: self.limits,
            seed: self.dice.number(),
        };
        let machine = (self.factory)(setup);
        self.processes.push(Process {
            machine,
            running: Running::Yes,
            place,
            endpoint,
            mono: Monotonic::beginning(
                CLOCK_BEGIN + self.dice.between(Duration::ZERO, CLOCK_BEGIN),
            ),
            skew: Skew::default(),
            paused_until: None,
            hung: false,
            backlog: Vec::new(),
            held_until: None,
            outbox: Vec::new(),
            inbox: Vec::new(),
            asked: Vec::new(),
            sent: Sent::default(),
            wake_at: None,
            view: None,
            notices: Vec::new(),
            termination: None,
            leaving: false,
            drains_for: Duration::from_millis(500),
            busy: (Duration::ZERO, 0),
        });
        self.truth.lives.push(Life {
            name,
            place,
            endpoint,
            silo: None,
            started: self.now + delay,
            ended: None,
            paused: Spell::default(),
            held: Spell::default(),
            table_cut: Spell::default(),
            leaving: None,
            skew: Skew::default(),
            earlier_skews: Vec::new(),
            hidden: !listens,
        });
        self.stats.starts += 1;
        if earlier == 0 {
            self.join_split(place);
            self.join_cuts(place);
        }
        self.note(id, "starts".to_owned());
        self.agenda.plan(
            self.now + delay,
            Event::Answer {
                process: id,
                input: Input::Start,
            },
        );
        id
    }

    /// A process begins to listen, unless another machine has its address.
    pub(super) fn listen(&mut self, id: ProcessId) {
        let (Some(process), Some(life)) = (self.processes.get(id.0), self.truth.lives.get(id.0))
        else {
            return;
        };
        if process.is_running() && !life.hidden {
            self.listeners.insert(process.endpoint, id);
        }
    }

    /// Ends a process at once. What it had sent is still on its way.
    pub fn kill(&mut self, silo: ProcessId) {
        if !self.is_running(silo) {
            return;
        }
        self.stats.kills += 1;
        self.note(silo, "is killed".to_owned());
        self.end(silo, Running::Killed);
    }

    /// The process does not run for so long: it neither sends nor receives, and no timer fires. What arrives waits.
    pub fn pause(&mut self, silo: ProcessId, time: Duration) {
        let until = self.now + time;
        match self.processes.get_mut(silo.0) {
            Some(process) if process.is_running() => process.paused_until = Some(until),
            _ => return,
        }
        self.stats.pauses += 1;
        if let Some(life) = self.truth.lives.get_mut(silo.0) {
            life.paused.set(true, self.now);
        }
        self.note(silo, format!("is paused for {:.1}s", time.as_secs_f64()));
        self.agenda.plan(until, Event::Resume(silo));
    }

    /// The application wants to leave: it says so, drains for half a second once the silo is ShuttingDown, and finishes.
    pub fn leave(&mut self, silo: ProcessId) {
        match self.processes.get_mut(silo.0) {
            Some(process) if process.is_running() && !process.leaving => process.leaving = true,
            _ => return,
        }
        self.stats.leaves += 1;
        self.note(silo, "is asked to leave".to_owned());
        self.agenda.plan(
            self.now,
            Event::Wish {
                process: silo,
                command: Command::BeginLeave,
            },
        );
    }

    /// The application wants anything else.
    pub fn command(&mut self, silo: ProcessId, command: Command) {
        self.note(silo, format!("is told {command:?}"));
        self.agenda.plan(
            self.now,
            Event::Wish {
                process: silo,
                command,
            },
        );
    }

    /// Any input for a process, now. The answer to a table call that it does not wait for is not taken.
    pub fn inject(&mut self, silo: ProcessId, input: Input) {
        self.agenda.plan(
            self.now,
            Event::Answer {
                process: silo,
                input,
            },
        );
    }
}

fn endpoint_of(place: usize) -> SocketAddr {
    let byte = |n: usize| u8::try_from(n % 250).unwrap_or(0);
    SocketAddr::from((
        [10, byte(place / 62_500), byte(place / 250), byte(place) + 1],
        7100,
    ))
}
