//! A silo that runs the protocol, writes the table honestly, and lies in its messages.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use membership_core::hooks;
use membership_core::protocol::{
    Destination, Effect, Finding, Header, Input, Message, Protocol, Setup,
};
use membership_core::{ClusterView, InstanceId, MonoTime, Now, SiloAddress, SiloStatus};
use membership_testing::{Cluster, Machine, ProcessId, VirtualTime};

pub(crate) const S: fn(u64) -> Duration = Duration::from_secs;
pub(crate) const SEEDS: u64 = 40;
pub(crate) const MS: fn(u64) -> Duration = Duration::from_millis;

/// What the liars share.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) on: bool,
    pub(crate) victims: Vec<SiloAddress>,
    /// Which messages the protocol of a liar does not get.
    pub(crate) unheard: Option<fn(&Message) -> bool>,
}

/// What one liar sees after one input.
pub(crate) struct Ctl<'a> {
    pub(crate) which: usize,
    pub(crate) now: MonoTime,
    pub(crate) plan: &'a Plan,
    pub(crate) view: ClusterView,
    pub(crate) me: SiloAddress,
    pub(crate) header: Header,
    /// A message that has just arrived.
    pub(crate) heard: Option<(SiloAddress, Arc<Message>)>,
    /// A tick of the liar's own clock.
    pub(crate) tick: bool,
    /// What the protocol would do.
    pub(crate) effects: Vec<Effect>,
}

impl Ctl<'_> {
    pub(crate) fn say(&mut self, to: SiloAddress, body: Message) {
        let mut header = self.header.clone();
        header.to = Some(to);
        self.effects.push(Effect::Send {
            to: Destination::Endpoint(to.endpoint()),
            header,
            body: Arc::new(body),
        });
    }
    /// Answers a roll call.
    pub(crate) fn answer(
        &mut self,
        to: SiloAddress,
        call: u64,
        findings: Vec<(SiloAddress, Finding)>,
        missed: Vec<SiloAddress>,
    ) {
        let answer = Message::RollAnswer {
            call,
            findings,
            missed,
        };
        self.say(to, answer);
    }
    pub(crate) fn others(&self) -> Vec<SiloAddress> {
        let alive = |s: SiloStatus| s != SiloStatus::Dead;
        let all = self.view.members().filter(|e| alive(e.status));
        all.map(|e| e.address).filter(|s| *s != self.me).collect()
    }
    /// Drops what the protocol would send, where this is true.
    pub(crate) fn withhold(&mut self, what: impl Fn(&Destination, &Message) -> bool) {
        self.effects
            .retain(|e| !matches!(e, Effect::Send { to, body, .. } if what(to, body)));
    }
}

pub(crate) type Lie = Rc<RefCell<dyn FnMut(&mut Ctl<'_>)>>;

pub(crate) struct Liar {
    which: usize,
    p: Protocol,
    cluster: u64,
    instance: InstanceId,
    pub(crate) plan: Rc<RefCell<Plan>>,
    lie: Lie,
    every: Duration,
    next: MonoTime,
}

impl Machine for Liar {
    fn handle(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>) {
        let heard = match &input {
            Input::Message { header, body, .. } => Some((header.from, body.clone())),
            _ => None,
        };
        let unheard = self.plan.borrow().unheard.filter(|_| self.plan.borrow().on);
        let input = match &input {
            Input::Message { body, .. } if unheard.is_some_and(|unheard| unheard(body)) => {
                Input::Wake
            }
            _ => input,
        };
        let mut mine = Vec::new();
        self.p.handle(now, input, &mut mine);
        let tick = now.mono >= self.next;
        if tick {
            self.next = now.mono + self.every;
        }
        let plan = self.plan.borrow();
        if plan.on
            && self.p.status() == SiloStatus::Active
            && let (Some(me), Some(view)) = (self.p.me(), self.p.confirmed_view().cloned())
        {
            let mut header = Header::new(self.cluster, me, self.instance);
            header.table_id = Some(view.table_id());
            header.version = view.version();
            header.digest = view.short_digest();
            let mut ctl = Ctl {
                which: self.which,
                now: now.mono,
                plan: &plan,
                view,
                me,
                header,
                heard,
                tick,
                effects: mine,
            };
            // It never calls itself, so it accuses nobody.
            ctl.withhold(|_, m| matches!(m, Message::RollCall { .. } | Message::RollResult { .. }));
            (self.lie.borrow_mut())(&mut ctl);
            mine = ctl.effects;
        }
        effects.append(&mut mine);
    }
    fn next_wakeup(&self) -> Option<MonoTime> {
        let own = self.p.next_wakeup()?;
        Some(if self.plan.borrow().on {
            own.min(self.next)
        } else {
            own
        })
    }
    fn me(&self) -> Option<SiloAddress> {
        self.p.me()
    }
    fn status(&self) -> SiloStatus {
        self.p.status()
    }
    fn view(&self) -> Option<&ClusterView> {
        self.p.view()
    }
    fn confirmed_view(&self) -> Option<&ClusterView> {
        self.p.confirmed_view()
    }
    fn is_suspended(&self) -> bool {
        self.p.is_suspended()
    }
}

pub(crate) struct Scene {
    pub(crate) c: Cluster,
    pub(crate) plan: Rc<RefCell<Plan>>,
    pub(crate) liars: Vec<usize>,
}

/// A settled cluster whose silos number `liars` will lie; no checks but those of the test.
pub(crate) fn scene(
    n: usize,
    liars: &[usize],
    seed: u64,
    every: Duration,
    lie: impl FnMut(&mut Ctl<'_>) + 'static,
) -> Scene {
    let plan = Rc::new(RefCell::new(Plan::default()));
    let lie: Lie = Rc::new(RefCell::new(lie));
    let (shared, bad) = (plan.clone(), liars.to_vec());
    let machines = move |setup: Setup| -> Box<dyn Machine> {
        let std::net::IpAddr::V4(ip) = setup.identity.advertise.ip() else {
            unreachable!()
        };
        let host = usize::from(ip.octets()[3]) - 1;
        let cluster = setup.identity.cluster.fingerprint();
        let instance = setup.identity.instance;
        let p = hooks::protocol(setup, crate::VARIANT);
        match bad.iter().position(|b| *b == host) {
            Some(which) => Box::new(Liar {
                which,
                p,
                cluster,
                instance,
                plan: shared.clone(),
                lie: lie.clone(),
                every,
                next: MonoTime::ZERO,
            }),
            None => Box::new(p),
        }
    };
    let mut c = Cluster::builder()
        .seed(seed)
        .silos(n)
        .variant(crate::VARIANT)
        .checks(Vec::new())
        .machines(Box::new(machines))
        .build()
        .unwrap();
    c.run_until_agreed(S(120)).unwrap();
    c.run_for(S(60)).unwrap();
    assert_eq!(c.running().len(), n);
    Scene {
        c,
        plan,
        liars: liars.to_vec(),
    }
}

pub(crate) fn ids(of: &[usize]) -> Vec<ProcessId> {
    of.iter().map(|i| ProcessId(*i)).collect()
}

impl Scene {
    pub(crate) fn start(&self, victims: &[usize]) {
        let mut plan = self.plan.borrow_mut();
        plan.victims = ids(victims)
            .iter()
            .map(|v| self.c.address(*v).unwrap())
            .collect();
        plan.on = true;
    }
    pub(crate) fn is_dead(&self, silo: usize) -> bool {
        self.c
            .row(ProcessId(silo))
            .is_none_or(|e| e.status == SiloStatus::Dead)
    }
    /// How long it took until these were Dead; none if they are not after `most`.
    pub(crate) fn removed(&mut self, silos: &[usize], most: Duration) -> Option<Duration> {
        let from: VirtualTime = self.c.now();
        let dead = |c: &Cluster| {
            ids(silos)
                .iter()
                .all(|s| c.row(*s).is_none_or(|e| e.status == SiloStatus::Dead))
        };
        let done = self.c.run_until(most, dead).unwrap();
        done.then(|| self.c.now() - from)
    }
    pub(crate) fn crash(&mut self, silos: &[usize]) {
        for s in ids(silos) {
            self.c.crash_machine(s);
        }
    }
    pub(crate) fn honest_dead(&self, n: usize, crashed: &[usize]) -> Vec<usize> {
        let honest = |i: &usize| !self.liars.contains(i) && !crashed.contains(i);
        (0..n).filter(honest).filter(|i| self.is_dead(*i)).collect()
    }
}

pub(crate) fn failed(silent_ms: u64, heard_ms: Option<u64>) -> Finding {
    Finding::Failed {
        silent_ms,
        heard_ms,
        refused: false,
        consent: Some(membership_core::protocol::Consent {
            misses: 2,
            timeout_ms: 1_500,
            last_answer_ms: None,
        }),
    }
}

/// Replaces the findings that the protocol would send about the victims.
pub(crate) fn answer_about_victims(ctl: &mut Ctl<'_>, finding: Finding) {
    if let Some((from, body)) = ctl.heard.clone()
        && let Message::RollCall { call, suspects } = &*body
    {
        ctl.withhold(|_, m| matches!(m, Message::RollAnswer { .. }));
        let findings = suspects
            .iter()
            .filter(|(s, _)| ctl.plan.victims.contains(s))
            .map(|(s, _)| (*s, finding))
            .collect();
        let call = *call;
        ctl.answer(from, call, findings, Vec::new());
    }
    // Late findings of its own are not told.
    let reached = matches!(finding, Finding::Reached);
    let heard = ctl.heard.is_some();
    if !heard || reached {
        let mine = |m: &Message| {
            matches!(m, Message::RollAnswer { findings, .. }
            if findings.iter().any(|(_, f)| *f != finding))
        };
        ctl.withhold(|_, m| mine(m));
    }
}
