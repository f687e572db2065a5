//! A substitute for the protocol, simple enough to be correct: it joins, writes heartbeats, reads
//! every two seconds, and leaves. It detects no failures.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::{Cluster, Machine, MachineFactory};
use membership_core::protocol::{
    CallId, Command, Destination, Effect, Header, Input, Message, Notice, Setup, Termination,
};
use membership_core::{
    CauseOfDeath, ClusterKey, ClusterView, CommitId, CommitOutcome, CommitRequest, Death,
    Heartbeat, HeartbeatWrite, InitializeRequest, MembershipEntry, MonoTime, Now, ReadAnswer,
    ReadRequest, SiloAddress, SiloStatus, Snapshot, TableId,
};

const PERIOD: Duration = Duration::from_secs(2);

pub(super) struct Fake {
    setup: Setup,
    me: Option<SiloAddress>,
    status: SiloStatus,
    view: Option<ClusterView>,
    calls: u64,
    beats: u64,
    next: Option<MonoTime>,
    leaving: bool,
}

pub(super) fn fakes() -> MachineFactory {
    Box::new(|setup| {
        Box::new(Fake {
            setup,
            me: None,
            status: SiloStatus::Created,
            view: None,
            calls: 0,
            beats: 0,
            next: None,
            leaving: false,
        })
    })
}

/// A machine whose inputs and effects a test changes.
struct Tampered {
    inner: Box<dyn Machine>,
    change: fn(&mut Input),
    tamper: Tamper,
}

type Tamper = Arc<Mutex<dyn FnMut(&Input, &mut Vec<Effect>) + Send>>;

pub(super) fn tampered(
    mut factory: MachineFactory,
    tamper: impl FnMut(&Input, &mut Vec<Effect>) + Send + 'static,
) -> MachineFactory {
    let tamper: Tamper = Arc::new(Mutex::new(tamper));
    Box::new(move |setup| {
        Box::new(Tampered {
            inner: factory(setup),
            change: |_| {},
            tamper: tamper.clone(),
        })
    })
}

/// Machines whose inputs a test changes.
pub(super) fn with_changed_inputs(
    mut factory: MachineFactory,
    change: fn(&mut Input),
) -> MachineFactory {
    let tamper: Tamper = Arc::new(Mutex::new(|_: &Input, _: &mut Vec<Effect>| {}));
    Box::new(move |setup| {
        Box::new(Tampered {
            inner: factory(setup),
            change,
            tamper: tamper.clone(),
        })
    })
}

impl Machine for Tampered {
    fn handle(&mut self, now: Now, mut input: Input, effects: &mut Vec<Effect>) {
        (self.change)(&mut input);
        self.inner.handle(now, input.clone(), effects);
        (self.tamper.lock().unwrap())(&input, effects);
    }
    fn next_wakeup(&self) -> Option<MonoTime> {
        self.inner.next_wakeup()
    }
    fn me(&self) -> Option<SiloAddress> {
        self.inner.me()
    }
    fn status(&self) -> SiloStatus {
        self.inner.status()
    }
    fn view(&self) -> Option<&ClusterView> {
        self.inner.view()
    }
}

impl Fake {
    fn call(&mut self) -> CallId {
        self.calls += 1;
        CallId(self.calls)
    }

    fn read(&mut self, effects: &mut Vec<Effect>) {
        let call = self.call();
        effects.push(Effect::Read {
            call,
            request: ReadRequest::all(),
        });
    }

    fn adopt(&mut self, now: Now, snapshot: Snapshot, effects: &mut Vec<Effect>) {
        let me = *self.me.get_or_insert_with(|| {
            SiloAddress::at(self.setup.identity.advertise, now.wall.as_millis())
        });
        let mut mine = snapshot.rows.get(&me).cloned();
        if let Some(e) = &mine {
            self.status = e.status;
        }
        if self
            .view
            .as_ref()
            .is_none_or(|v| v.version() < snapshot.version())
        {
            let view = ClusterView::new(snapshot.clone());
            self.view = Some(view.clone());
            effects.push(Effect::Publish(view));
        }
        match &mut mine {
            None if self.status == SiloStatus::Created => {
                let mut entry = MembershipEntry::new(me, self.setup.identity.instance, now.wall);
                entry.status = SiloStatus::Active;
                let call = self.call();
                let id = CommitId::new(u128::from(self.setup.seed) << 32 | u128::from(call.0));
                effects.push(Effect::Commit {
                    call,
                    request: CommitRequest::new(snapshot.token, id, Some(me), [entry], [], []),
                });
            }
            Some(entry) if self.leaving && entry.status == SiloStatus::Active => {
                entry.status = SiloStatus::Dead;
                entry.death = Some(Death::new(
                    CauseOfDeath::Left,
                    now.wall,
                    Some(me),
                    snapshot.version() + 1,
                ));
                let call = self.call();
                let id = CommitId::new(u128::from(self.setup.seed) << 32 | u128::from(call.0));
                effects.push(Effect::Commit {
                    call,
                    request: CommitRequest::new(
                        snapshot.token,
                        id,
                        Some(me),
                        [],
                        [entry.clone()],
                        [],
                    ),
                });
            }
            _ => {}
        }
        self.next = Some(now.mono + PERIOD);
    }

    fn probe_everybody(&self, effects: &mut Vec<Effect>) {
        let (Some(view), Some(me)) = (&self.view, self.me) else {
            return;
        };
        for other in view.active().filter(|e| e.address != me) {
            effects.push(Effect::Send {
                to: Destination::Endpoint(other.address.endpoint()),
                header: self.header(),
                body: Arc::new(Message::Probe { nonce: 1 }),
            });
        }
    }

    fn header(&self) -> Header {
        let me = self
            .me
            .unwrap_or(SiloAddress::at(self.setup.identity.advertise, 0));
        Header::new(0, me, self.setup.identity.instance)
    }
}

impl Machine for Fake {
    fn handle(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>) {
        // What is overdue is due now.
        self.next = self.next.map(|at| at.max(now.mono));
        match input {
            Input::Start => {
                let table_id = TableId::new(u128::from(self.setup.seed));
                let call = self.call();
                effects.push(Effect::Initialize {
                    call,
                    request: InitializeRequest::new(
                        table_id,
                        self.setup.config.shared(),
                        ClusterKey::new([7; 32]),
                    ),
                });
            }
            Input::Initialized { .. } => self.read(effects),
            Input::Read {
                result: Ok(ReadAnswer::Snapshot { snapshot, .. }),
                ..
            } => self.adopt(now, snapshot, effects),
            Input::Committed {
                result: Ok(CommitOutcome::Committed(_)),
                ..
            } if self.leaving => {
                effects.push(Effect::Tell(Notice::LeaveBegun { version: None }));
            }
            Input::Committed { .. } | Input::Read { .. } => {
                self.next = Some(now.mono + PERIOD / 10)
            }
            Input::Message { link, body, .. } => {
                if let Message::Probe { nonce } = *body {
                    let body = Arc::new(Message::ProbeAck { nonce });
                    effects.push(Effect::Send {
                        to: Destination::Link(link),
                        header: self.header(),
                        body,
                    });
                }
            }
            Input::Wake if self.next.is_some_and(|at| at <= now.mono) => {
                self.next = None;
                self.read(effects);
                self.probe_everybody(effects);
                if let (Some(silo), SiloStatus::Active) = (self.me, self.status) {
                    self.beats += 1;
                    let write = HeartbeatWrite::Silo {
                        silo,
                        heartbeat: Heartbeat {
                            counter: self.beats,
                            at: now.wall,
                        },
                    };
                    let call = self.call();
                    effects.push(Effect::WriteHeartbeat { call, write });
                }
            }
            Input::Command(Command::BeginLeave) => {
                self.leaving = true;
                self.read(effects);
            }
            Input::Command(Command::FinishLeave) => {
                effects.push(Effect::Stop(Termination::Left { clean: true }))
            }
            _ => {}
        }
    }
    fn next_wakeup(&self) -> Option<MonoTime> {
        self.next
    }
    fn me(&self) -> Option<SiloAddress> {
        self.me
    }
    fn status(&self) -> SiloStatus {
        self.status
    }
    fn view(&self) -> Option<&ClusterView> {
        self.view.as_ref()
    }
}

/// All checkers except P9 and P15, because these machines join without contact and probe everybody.
fn checks() -> Vec<Box<dyn crate::checks::Check>> {
    crate::checks::all()
        .into_iter()
        .filter(|c| !matches!(c.invariant(), "P9" | "P15"))
        .collect()
}

pub(super) fn cluster(seed: u64, silos: usize) -> Cluster {
    Cluster::builder()
        .seed(seed)
        .silos(silos)
        .checks(checks())
        .machines(fakes())
        .build()
        .unwrap()
}

pub(super) fn tampered_cluster(
    silos: usize,
    tamper: impl FnMut(&Input, &mut Vec<Effect>) + Send + 'static,
) -> Cluster {
    Cluster::builder()
        .seed(1)
        .silos(silos)
        .checks(checks())
        .machines(tampered(fakes(), tamper))
        .build()
        .unwrap()
}

mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn silos_join_write_heartbeats_and_leave() {
        let mut cluster = cluster(1, 5);
        cluster.run_until_agreed(S(60)).unwrap();
        let one = cluster.running()[0];
        cluster.leave(one);
        assert!(cluster.run_until(S(60), |c| !c.is_running(one)).unwrap());
        cluster.run_until_agreed(S(60)).unwrap();
        cluster.settle().unwrap();
        assert!(cluster.stats().wakes > 100 && cluster.stats().commits >= 6);
    }

    #[test]
    fn the_same_seed_gives_the_same_run() {
        let hash = |seed| {
            let mut c = cluster(seed, 8);
            c.message_loss(0.1);
            c.unknown_outcomes(0.3);
            c.run_for(S(120)).unwrap();
            let victim = c.running()[0];
            c.restart(victim);
            c.run_for(S(60)).unwrap();
            c.trace().hash()
        };
        assert_eq!(hash(7), hash(7));
        assert_ne!(hash(7), hash(8));
    }

    #[test]
    fn blocked_isolated_and_paused_processes_receive_nothing() {
        let mut c = cluster(3, 4);
        c.run_until_agreed(S(60)).unwrap();
        let all = c.running();
        let probes = |c: &mut Cluster| {
            let before = c.stats().dropped;
            c.run_for(S(10)).unwrap();
            c.stats().dropped - before
        };
        assert_eq!(probes(&mut c), 0);
        c.block(all[0], all[1]);
        // Five probes of the isolated silo, and its five answers to the probes of the other.
        assert!((9..=11).contains(&probes(&mut c)), "{}", c.stats().dropped);
        c.heal();
        assert_eq!(probes(&mut c), 0);
        c.isolate(all[2]);
        assert!(probes(&mut c) >= 28);
        c.heal();
        c.pause(all[1], S(30));
        let inputs = c.stats().inputs;
        c.run_for(S(29)).unwrap();
        assert!(c.is_paused(all[1]));
        let (paused, before) = (c.stats().inputs - inputs, c.stats().inputs);
        c.run_for(S(2)).unwrap();
        assert!(
            !c.is_paused(all[1]) && c.stats().inputs - before > 40 && paused > 100,
            "the messages came late, all at once"
        );
    }

    #[test]
    fn the_table_can_fail_conflict_and_be_wiped_and_restored() {
        let mut c = cluster(5, 3);
        c.run_until_agreed(S(60)).unwrap();
        c.table_outage(S(30));
        c.run_for(S(29)).unwrap();
        assert!(c.stats().failed_calls > 10);
        c.run_for(S(10)).unwrap();
        let backup = c.backup_table();
        let version = c.table().unwrap().version();
        c.foreign_commit();
        assert_eq!(c.table().unwrap().version(), version + 1);
        c.restore_table(backup);
        assert_eq!(c.table().unwrap().version(), version);
        c.wipe_table();
        assert!(c.table().is_none());
        let mut c = cluster(6, 0);
        c.unknown_outcomes(1.0);
        c.start(9);
        c.run_for(S(60)).unwrap();
        assert!(c.stats().unknown > 9 && (1..=9).contains(&c.stats().unknown_landed));
    }

    #[test]
    fn a_process_that_advertises_anothers_address_reaches_that_one() {
        let mut c = cluster(5, 2);
        c.run_until_agreed(S(60)).unwrap();
        let first = c.running()[0];
        let second = c.start_behind(first);
        c.run_for(S(10)).unwrap();
        assert_eq!(
            c.address(first).unwrap().endpoint(),
            c.address(second).unwrap().endpoint()
        );
        let new = c.take_over(first);
        c.run_for(S(10)).unwrap();
        assert!(c.is_running(first) && c.is_running(new));
        assert!(c.truth().record(first).unwrap().hidden && !c.truth().record(new).unwrap().hidden);
    }
}
