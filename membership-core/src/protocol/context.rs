//! State that all machines of the protocol share: the identity of this silo, its view, the clock of
//! the current input, the random numbers, and the list of effects.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rand_core::{Rng as _, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::distrust::Distrust;
use super::expense::Expense;
use super::interned::Interned;
use super::io::{CallId, Destination, Effect, LinkId};
use super::kept::Kept;
use super::lag::Lag;
use super::members::Members;
use super::message::{Header, Message, PROTOCOL_VERSION};
use super::notice::Notice;
use super::notice::TableState;
use super::observation::{Learned, Observation};
use super::timers::{Timer, Timers};
use super::words::Words;
use super::{Identity, Setup};
use crate::SuspicionReason;
use crate::config::timeout_in;
use crate::hooks::ProtocolVariant;
use crate::{
    ClusterKey, ClusterView, Config, InstanceId, MembershipEntry, MonoTime, Now, Recency,
    SharedSettings, SiloAddress, SiloStatus, Snapshot, Suspicion, TableLimits,
};

/// Availability of the table.
#[derive(Debug)]
pub(crate) struct TableHealth {
    pub(crate) state: TableState,
    /// What one answer said of the table, until a second one over a new connection agrees.
    pub(crate) doubted: Option<TableState>,
    /// When calls began to fail; none while they succeed.
    pub(crate) failing_since: Option<MonoTime>,
    /// When calls last began to succeed again.
    pub(crate) recovered_at: Option<MonoTime>,
}

/// What other silos sent since the confirmed view.
#[derive(Clone, Debug)]
pub(crate) struct Announcement {
    /// The first version, and when it was announced: more may follow faster than the table can be
    /// read.
    pub(crate) first: (u64, MonoTime),
    /// When the newest was announced.
    pub(crate) newest_at: MonoTime,
    /// Everyone of whom a part of it may be.
    pub(crate) by: Vec<SiloAddress>,
}

impl Announcement {
    /// Whether all of it may be true although a linearizable read that was sent then shows this
    /// older version.
    pub(crate) fn may_follow(&self, version: u64, sent: MonoTime) -> bool {
        let (first, at) = self.first;
        sent < at || (version >= first && sent < self.newest_at)
    }

    /// What is left of it when the table has shown a part.
    pub(crate) fn after(mut self, view: &ClusterView) -> Self {
        self.first = (view.version(), self.newest_at);
        self
    }
}

#[derive(Debug)]
pub(crate) struct Ctx {
    pub(crate) identity: Identity,
    pub(crate) config: Config,
    pub(crate) limits: TableLimits,
    /// Differences from the standard protocol; used only in comparisons.
    pub(crate) variant: ProtocolVariant,
    pub(crate) fingerprint: u64,
    pub(crate) now: Now,
    pub(crate) timers: Timers<Timer>,
    pub(crate) out: Vec<Effect>,
    /// The address of this silo; epoch 0 until the epoch is decided.
    pub(crate) me: SiloAddress,
    pub(crate) status: SiloStatus,
    /// The newest view, confirmed or announced.
    pub(crate) view: Option<ClusterView>,
    /// The newest confirmed view: the same, or an older one while `view` is only announced. Every
    /// decision rests on it.
    pub(crate) base: Option<ClusterView>,
    /// Who announced `view`, and when; none while it is confirmed.
    pub(crate) announced: Option<Announcement>,
    /// The lists of the confirmed view: what a message says of others makes this silo neither probe,
    /// accuse nor trust anybody.
    pub(crate) members: Members,
    /// The settings that the cluster shares, clamped to the allowed ranges.
    shared: Arc<SharedSettings>,
    /// When the last successful read or commit was sent.
    pub(crate) contact: Option<MonoTime>,
    pub(crate) table: TableHealth,
    pub(crate) suspended: bool,
    /// How late this silo's timers are.
    pub(crate) lag: Lag,
    /// What roll calls cost.
    pub(crate) expense: Expense,
    /// The last views, and what the table has shown last.
    pub(crate) kept: Kept,
    /// Members that announced what the table contradicted.
    pub(crate) distrust: Distrust,
    /// The cluster's secret, if this silo creates the table.
    pub(crate) cluster_key: ClusterKey,
    /// What this silo tells those whom it dials back, if one silo writes for many.
    pub(crate) words: Words,
    /// How recent the table's usual reads are.
    pub(crate) reads: Recency,
    /// What the silos of a simulation share.
    pub(crate) views: Option<Interned>,
    rng: Xoshiro256PlusPlus,
    next_call: u64,
}

impl Ctx {
    pub(crate) fn new(setup: Setup) -> Self {
        let me = SiloAddress::at(setup.identity.advertise, 0);
        let variant = match setup.config.scribe {
            true => ProtocolVariant::SCRIBE,
            false => ProtocolVariant::STANDARD,
        };
        Self {
            words: Words::new(&setup),
            shared: Arc::new(setup.config.shared().workable()),
            contact: None,
            fingerprint: setup.identity.cluster.fingerprint(),
            identity: setup.identity,
            config: setup.config,
            limits: setup.limits,
            variant,
            now: Now::default(),
            timers: Timers::default(),
            out: Vec::new(),
            me,
            status: SiloStatus::Created,
            view: None,
            base: None,
            announced: None,
            members: Members::default(),
            table: TableHealth {
                state: TableState::Available,
                doubted: None,
                failing_since: None,
                recovered_at: None,
            },
            suspended: false,
            lag: Lag::default(),
            expense: Expense::default(),
            kept: Kept::default(),
            distrust: Distrust::default(),
            cluster_key: setup.cluster_key,
            reads: setup.reads,
            views: None,
            rng: Xoshiro256PlusPlus::seed_from_u64(setup.seed),
            next_call: 0,
        }
    }

    pub(crate) fn mono(&self) -> MonoTime {
        self.now.mono
    }

    /// How long to wait for the answer of another silo that usually comes within `usual`: longer, and up
    /// to 3 s more, where this silo's timers are late. Only where one silo writes for many: what depends
    /// on it there is who does some work, and nobody's life.
    pub(crate) fn patience(&self, usual: Duration) -> Duration {
        if self.variant.scribe {
            usual + self.lag.slack(self.mono(), 4, Duration::from_secs(3))
        } else {
            usual
        }
    }

    pub(crate) fn set_timer(&mut self, timer: Timer, after: Duration) {
        self.timers.set(timer, self.now.mono + after);
    }

    /// Plans a timer for a time that may be over already: then it is due at once, and not late. (A
    /// silo whose timers are late takes itself to have been paused.)
    pub(crate) fn set_timer_at(&mut self, timer: Timer, at: MonoTime) {
        self.timers.set(timer, at.max(self.now.mono));
    }

    /// The settings that the cluster shares: those of the table as soon as it was read.
    pub(crate) fn settings(&self) -> Arc<SharedSettings> {
        self.shared.clone()
    }

    /// Adopts the settings of a new confirmed view.
    pub(crate) fn follow_settings(&mut self) {
        if let Some(view) = &self.base {
            let stored = &view.snapshot().version_row.settings;
            let workable = stored.workable();
            if *self.shared != workable {
                self.shared = Arc::new(workable);
            }
        }
    }

    pub(crate) fn failure_window(&self) -> Duration {
        self.shared.failure_window
    }

    /// The shortest time that a probe waits for its answer.
    pub(crate) fn probe_timeout(&self) -> Duration {
        timeout_in(
            self.shared.failure_window,
            self.config.num_missed_probes_limit,
        )
    }

    pub(crate) fn heartbeat_period(&self) -> Duration {
        self.shared.i_am_alive_period
    }

    /// Whether a vote is recent enough to count; the same rule as in
    /// [`apply`](crate::intent::apply).
    pub(crate) fn is_fresh(&self, suspect: SiloAddress, vote: &Suspicion) -> bool {
        let expiry = self.shared.death_vote_expiration;
        self.members
            .sighted(&suspect, vote)
            .is_some_and(|when| self.mono().since(when) <= expiry)
            || self.now.wall.distance(vote.at) <= expiry
    }

    /// Whether an Active or Joining silo challenges this one: it must show that it writes heartbeats.
    pub(crate) fn is_challenged(&self, silo: &SiloAddress) -> bool {
        let counts = |s: &SiloAddress| {
            let lists = [&self.members.active, &self.members.joining];
            lists.iter().any(|list| list.binary_search(s).is_ok())
        };
        self.members.accused.binary_search(silo).is_ok()
            && self.confirmed_entry(silo).is_some_and(|e| {
                e.suspicions.iter().any(|v| {
                    v.reason == SuspicionReason::Challenge
                        && counts(&v.accuser)
                        && !v.accuser.same_endpoint(silo)
                        && self.is_fresh(*silo, v)
                })
            })
    }

    pub(crate) fn version(&self) -> u64 {
        self.view.as_ref().map_or(0, ClusterView::version)
    }

    pub(crate) fn random(&mut self) -> u64 {
        self.rng.next_u64()
    }

    /// A random number that names a probe: 32 bits, which take five bytes on the wire. They suffice,
    /// because an answer counts only if it comes from the silo that was probed, whose instance the
    /// connection has proven: it need not be a secret, only differ from those of the few other probes
    /// to that silo.
    pub(crate) fn probe_nonce(&mut self) -> u64 {
        self.random() >> 32
    }

    pub(crate) fn random_id(&mut self) -> u128 {
        (u128::from(self.random()) << 64) | u128::from(self.random())
    }

    /// Uniform in `0..n`; 0 when `n` is 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        if n == 0 {
            0
        } else {
            usize::try_from(self.random() % n as u64).unwrap_or(0)
        }
    }

    /// Uniform between zero and `most`.
    pub(crate) fn jitter(&mut self, most: Duration) -> Duration {
        let nanos = u64::try_from(most.as_nanos())
            .unwrap_or(u64::MAX)
            .min(u64::MAX - 1);
        Duration::from_nanos(self.random() % (nanos + 1))
    }

    pub(crate) fn call(&mut self) -> CallId {
        self.next_call += 1;
        CallId(self.next_call)
    }

    /// The newest view and when it was announced, while no contact with the table confirms it.
    pub(crate) fn announced(&self) -> Option<(&ClusterView, MonoTime)> {
        self.view
            .as_ref()
            .zip(self.announced.as_ref().map(|a| a.newest_at))
    }

    /// The same snapshot with what other silos of a simulation hold as well.
    pub(crate) fn interned(&self, snapshot: Snapshot) -> Snapshot {
        match &self.views {
            Some(views) => views.share(snapshot),
            None => snapshot,
        }
    }

    /// Keeps this view among the last ones, where they are used.
    pub(crate) fn keep(&mut self, view: &Snapshot) {
        if self.variant.scribe {
            self.kept.keep(view, self.variant.kept_views.max(1));
        }
    }

    pub(crate) fn is_announced(&self) -> bool {
        self.announced.is_some()
    }

    /// The version of the newest confirmed view.
    pub(crate) fn base_version(&self) -> u64 {
        self.base.as_ref().map_or(0, ClusterView::version)
    }

    /// The entry of a silo in the newest confirmed view, if its row exists and can be decoded.
    pub(crate) fn confirmed_entry(&self, silo: &SiloAddress) -> Option<&MembershipEntry> {
        self.base.as_ref().and_then(|base| base.get(silo))
    }

    /// The leader of the newest confirmed view.
    pub(crate) fn leader(&self) -> Option<SiloAddress> {
        self.members.leader()
    }

    /// Whether a silo is alive in the newest confirmed view, as this instance. Only such silos
    /// announce views.
    pub(crate) fn is_member(&self, silo: &SiloAddress, instance: InstanceId) -> bool {
        self.members.instance(silo) == Some(instance)
    }

    /// Whether the table has a secret by which newcomers are known.
    pub(crate) fn has_cluster_key(&self) -> bool {
        self.base
            .as_ref()
            .is_some_and(|v| !v.snapshot().version_row.core.cluster_keys().is_empty())
    }

    /// Records that this silo's table answered a call sent at `sent`.
    pub(crate) fn contacted(&mut self, sent: MonoTime) {
        self.contact = self.contact.max(Some(sent));
    }

    /// Whether this silo passes news on that it hears.
    pub(crate) const fn passes_news_on(&self) -> bool {
        self.variant.flood_above.is_some()
    }

    /// What this silo tells others: what the table has shown, or where news is passed on, what it has heard.
    pub(crate) fn told(&self) -> Option<&ClusterView> {
        if self.passes_news_on() {
            self.view.as_ref()
        } else {
            self.base.as_ref()
        }
    }

    fn header(&self, to: Option<SiloAddress>) -> Header {
        // A member that names no table has lost the one that all knew.
        let told = self
            .told()
            .filter(|_| !(self.table_changed() && self.has_pulse()));
        Header {
            cluster: self.fingerprint,
            protocol: PROTOCOL_VERSION,
            from: self.me,
            instance: self.identity.instance,
            to,
            // Only what the table has shown is told to others.
            table_id: told.map(ClusterView::table_id),
            version: told.map_or(0, ClusterView::version),
            digest: told.map_or(0, ClusterView::short_digest),
        }
    }

    pub(crate) fn send(
        &mut self,
        to: Destination,
        silo: Option<SiloAddress>,
        body: impl Into<Arc<Message>>,
    ) {
        let header = self.header(silo);
        let body = body.into();
        if matches!(
            *body,
            Message::RollCall { .. } | Message::RollAnswer { .. } | Message::RollResult { .. }
        ) {
            self.expense.add(self.now.mono, &self.config);
        }
        self.out.push(Effect::Send { to, header, body });
    }

    /// Sends to a silo at its endpoint.
    pub(crate) fn send_to(&mut self, silo: SiloAddress, body: impl Into<Arc<Message>>) {
        self.send(Destination::Endpoint(silo.endpoint()), Some(silo), body);
    }

    /// Replies on the connection by which a message came.
    pub(crate) fn reply(&mut self, link: LinkId, silo: SiloAddress, body: impl Into<Arc<Message>>) {
        self.send(
            Destination::Link(link),
            (silo.epoch() != 0).then_some(silo),
            body,
        );
    }

    pub(crate) fn dial_afresh(
        &mut self,
        endpoint: SocketAddr,
        silo: Option<SiloAddress>,
        body: impl Into<Arc<Message>>,
    ) {
        self.send(Destination::Fresh(endpoint), silo, body);
    }

    pub(crate) fn tell(&mut self, notice: Notice) {
        self.out.push(Effect::Tell(notice));
    }

    pub(crate) fn observe(&mut self, observation: Observation) {
        self.out.push(Effect::Observe(observation));
    }

    /// Counts the newest view, which has just come.
    pub(crate) fn learned(&mut self, how: Learned) {
        let version = self.version();
        self.observe(Observation::ViewLearned { version, how });
    }

    pub(crate) fn is_active(&self) -> bool {
        self.status == SiloStatus::Active
    }

    /// Whether the table is no longer the one this silo knew, so that nothing may be written or
    /// adopted.
    pub(crate) fn table_changed(&self) -> bool {
        matches!(self.table.state, TableState::Changed(_))
    }

    /// Whether this silo is suspended and its table calls do not fail: it will soon know what it has
    /// missed. Until they succeed again, a silo whose calls fail helps others as if it had run on.
    pub(crate) const fn waits_for_the_table(&self) -> bool {
        self.suspended && self.table.failing_since.is_none()
    }

    /// Whether the table is no longer the one this silo knew, or one answer says so.
    pub(crate) fn table_doubted(&self) -> bool {
        self.table_changed() || matches!(self.table.doubted, Some(TableState::Changed(_)))
    }

    pub(crate) fn set_table_state(&mut self, state: TableState) {
        if self.table.state != state && !self.table_changed() {
            self.table.state = state;
            self.tell(Notice::Table(state));
        }
    }
}
