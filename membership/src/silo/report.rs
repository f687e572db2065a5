//! A silo's log and metrics. One line per change of state at info; nothing per probe above debug.

use std::time::Duration;

use membership_core::protocol::{
    Health, Identity, NotReached, Notice, Observation, Protocol, TableState, Termination,
};
use membership_core::{
    CauseOfDeath, ChangeKind, ClusterName, ClusterView, MonoTime, SiloAddress, SiloStatus,
    TableError,
};
use tracing::{debug, error, info, warn};

use super::answers_log::AnswersLog;
use super::reach_log::ReachLog;
use super::table_log::{TableLine, TableLog};
use crate::metrics;
use crate::runtime::MAX_LINES;
use crate::transport::TransportStats;

/// Of the lines that say what `Silo::events` and `Silo::terminated` say too: a program that shows those
/// can switch them off.
const EVENTS: &str = "membership::silo::events";
/// How often gauges of ages are set.
const GAUGES_EVERY: Duration = Duration::from_secs(1);

pub(super) struct Report {
    cluster: ClusterName,
    me: Option<SiloAddress>,
    last: Option<(ClusterView, MonoTime)>,
    gauges_at: MonoTime,
    sent: TransportStats,
    table: TableLog,
    reach: ReachLog,
    answers: AnswersLog,
    /// How many silos this one does not reach, though others do.
    unreached: usize,
}

impl Report {
    pub(super) fn new(identity: &Identity) -> Self {
        metrics::begin();
        Self {
            cluster: identity.cluster.clone(),
            me: None,
            last: None,
            gauges_at: MonoTime::ZERO,
            sent: TransportStats::default(),
            table: TableLog::default(),
            reach: ReachLog::default(),
            answers: AnswersLog::default(),
            unreached: 0,
        }
    }

    fn silo(&self) -> String {
        self.me.map_or_else(|| "-".to_owned(), |me| me.to_string())
    }

    /// Called a few times a second, to log changes that have no event. Gives how many silos are probed
    /// in vain, if nobody has begun or ceased to answer.
    pub(super) fn tick(
        &mut self,
        protocol: &Protocol,
        now: MonoTime,
        late: Duration,
        stats: TransportStats,
    ) -> Option<usize> {
        self.me = protocol.me().or(self.me);
        metrics::executor_lag(late);
        if let Some(line) = self.table.tick(now) {
            self.table_line(line);
        }
        if let Some(unreached) = self.reach.tick(now) {
            self.reach_line(&unreached);
        }
        let unanswered = self.answers.tick(now, protocol.failure_window() * 2);
        if let Some(silos) = unanswered {
            self.answers_line(silos);
        }
        if now.since(self.gauges_at) < GAUGES_EVERY {
            return unanswered;
        }
        self.gauges_at = now;
        let Health { score, local, .. } = protocol.health();
        metrics::observe(&Observation::Health { score, local });
        metrics::unreached(self.unreached);
        metrics::writer(protocol.me(), &protocol.writer_state());
        if let Some((_, published)) = &self.last {
            let contact = protocol.table_contact().unwrap_or_default();
            metrics::ages(now.since(*published), now.since(contact));
        }
        metrics::transport(&self.sent, &stats);
        self.sent = stats;
        unanswered
    }

    fn answers_line(&self, silos: usize) {
        let (silo, cluster) = (self.silo(), &self.cluster);
        if silos == 0 {
            warn!(target: EVENTS, silo, %cluster, "another silo answers this one again");
            return;
        }
        warn!(target: EVENTS, silo, %cluster, silos, "no other silo answers this one: it is cut off, or alone. The others may have given it up: then the table says that it is dead, and it stops when it can read that");
    }

    pub(super) fn view(&mut self, view: ClusterView, now: MonoTime) {
        metrics::view(&view);
        let settings = view.snapshot().version_row.settings.workable();
        self.table.heartbeats(settings.i_am_alive_period);
        let lives = |silo: &SiloAddress| view.status(silo).is_some_and(|s| s != SiloStatus::Dead);
        self.answers.keep(lives);
        let (silo, version) = (self.silo(), view.version());
        match &self.last {
            None => {
                info!(silo, cluster = %self.cluster, version, members = view.len(), active = view.active().count(), "first view")
            }
            Some((older, _)) => {
                let changes = view.changes_since(older);
                metrics::deaths(&changes);
                let seen: Vec<_> = changes
                    .iter()
                    .filter(|c| c.kind != ChangeKind::Updated)
                    .collect();
                debug!(silo, cluster = %self.cluster, version, changes = changes.len(), "view");
                if seen.len() > MAX_LINES {
                    info!(silo, cluster = %self.cluster, version, changes = seen.len(), active = view.active().count(), "many silos changed");
                } else {
                    for change in seen {
                        let cause = change.entry.death.as_ref().map(|d| d.cause.to_string());
                        info!(silo, cluster = %self.cluster, version, peer = %change.entry.address, status = %change.entry.status, cause, "silo changed");
                    }
                }
            }
        }
        self.last = Some((view, now));
    }

    pub(super) fn notice(&mut self, notice: &Notice, error: Option<&TableError>, now: MonoTime) {
        if let Notice::Joining { silo, .. } = notice {
            self.me = Some(*silo);
        }
        let silo = self.silo();
        let cluster = &self.cluster;
        match notice {
            Notice::Joining { version, .. } => info!(silo, %cluster, version, "joining"),
            Notice::JoinProgress(p) => {
                let unreached: Vec<String> = p.unreached.iter().map(ToString::to_string).collect();
                info!(silo, %cluster, elapsed = ?p.elapsed, waiting_for = p.waiting_for, unreached = unreached.join("; "), "still joining");
            }
            Notice::Active { version } => info!(silo, %cluster, version, "active"),
            Notice::LeaveBegun { version } => info!(silo, %cluster, version, "leaving"),
            Notice::Table(state) => {
                let cause = error.map(ToString::to_string);
                if let Some(line) = self.table.changed(*state, cause, now) {
                    self.table_line(line);
                }
            }
            Notice::PartialPartition { unreached } => {
                self.unreached = unreached.len();
                if let Some(unreached) = self.reach.changed(unreached, now) {
                    self.reach_line(&unreached);
                }
            }
            Notice::SettingsDiffer { table, configured } => {
                let differ = table.differences(configured);
                let one = |(name, table, here): &(&str, String, String)| {
                    format!("{name} is {table} in the table and {here} here")
                };
                let settings: Vec<String> = differ.iter().map(one).collect();
                warn!(silo, %cluster, settings = settings.join(", "), "configured otherwise than the cluster's shared settings; the silo follows the table");
            }
            Notice::ViewWithdrawn { version, table } => {
                warn!(target: EVENTS, silo, %cluster, version, table, "the table does not have a view that another silo announced: it is withdrawn");
                metrics::view_withdrawn();
            }
            Notice::Suspended(true) => {
                warn!(silo, %cluster, "suspended after a long pause, until the table can be read")
            }
            Notice::Suspended(false) => info!(silo, %cluster, "resumed after a pause"),
            other => debug!(silo, %cluster, notice = ?other, "notice"),
        }
    }

    fn reach_line(&self, unreached: &[NotReached]) {
        let (silo, cluster) = (self.silo(), &self.cluster);
        if unreached.is_empty() {
            warn!(target: EVENTS, silo, %cluster, "the partial partition has ended: this silo reaches every silo again that others reach");
            return;
        }
        let peers = named(unreached);
        warn!(target: EVENTS, silo, %cluster, unreached = unreached.len(), peers, "a partial partition: this silo does not reach silos that others reach; nobody is declared dead for it; run `membership doctor`");
    }

    fn table_line(&self, line: TableLine) {
        let silo = self.silo();
        let cluster = &self.cluster;
        match line {
            TableLine::Available => {
                warn!(target: EVENTS, silo, %cluster, "the table is available again")
            }
            TableLine::Broken(TableState::Unavailable, error) => {
                warn!(target: EVENTS, silo, %cluster, error, "the table is unavailable; silos keep running, none is declared dead")
            }
            TableLine::Broken(TableState::Changed(how), error) => {
                error!(target: EVENTS, silo, %cluster, how = ?how, error, "this is not the table that the silo knew: it adopts and writes nothing any more, and admits nobody; restart all silos together")
            }
            TableLine::Broken(state, error) => {
                error!(target: EVENTS, silo, %cluster, state = ?state, error, "the table cannot be used; run `membership doctor`")
            }
        }
    }

    pub(super) fn observation(&mut self, observation: &Observation, now: MonoTime) {
        metrics::observe(observation);
        self.answers.observed(observation, now);
        let silo = self.silo();
        let cluster = &self.cluster;
        match observation {
            Observation::VoteCast { suspect } => {
                info!(silo, %cluster, peer = %suspect, "voted against")
            }
            Observation::VoteReceived { accuser } => {
                warn!(silo, %cluster, peer = %accuser, "a vote against this silo")
            }
            Observation::Health { score, local } => info!(silo, %cluster, score, local, "health"),
            Observation::Paused(pause) => warn!(silo, %cluster, ?pause, "this process was paused"),
            other => debug!(silo, %cluster, observation = ?other, "observed"),
        }
    }

    pub(super) fn end(&self, termination: &Termination) {
        metrics::stopped(termination);
        let silo = self.silo();
        let cluster = &self.cluster;
        match termination {
            Termination::Left { clean } => info!(target: EVENTS, silo, %cluster, clean, "left"),
            Termination::DeclaredDead(dead) => {
                let accusers: Vec<String> =
                    dead.votes.iter().map(|v| v.accuser.to_string()).collect();
                let accusers = (!accusers.is_empty()).then(|| accusers.join(", "));
                let why = match dead.death.as_ref().map(|death| &death.cause) {
                    None => Some(NO_ROW.to_owned()),
                    Some(cause @ CauseOfDeath::Evicted { .. }) => Some(cause.to_string()),
                    Some(_) => None,
                };
                error!(target: EVENTS, silo, %cluster, version = dead.version, cause = dead.cause(), why, accusers, "declared dead");
            }
            Termination::Unreachable { why, clean } => {
                error!(target: EVENTS, silo, %cluster, clean, why = %why, "left, because no other silo reaches it");
            }
            Termination::JoinFailed(why) => {
                error!(target: EVENTS, silo, %cluster, why = %why, "did not join")
            }
            other => error!(target: EVENTS, silo, %cluster, why = %other, "stopped"),
        }
    }
}

/// Why a silo ends without a death of its own.
const NO_ROW: &str = "the table has no row of it: somebody removed it by hand, or it was dead for so long that it was cleaned up";

/// At most this many silos are named in a line.
const MAX_NAMES: usize = 8;

/// `10.0.3.9:7100@1 (3 of 5 reach it), and 4 more`.
fn named(unreached: &[NotReached]) -> String {
    let one = |u: &NotReached| {
        let call = u.roll_call;
        format!("{} ({} of {} reach it)", u.silo, call.reached, call.asked)
    };
    let mut names: Vec<String> = unreached.iter().take(MAX_NAMES).map(one).collect();
    if let Some(more @ 1..) = unreached.len().checked_sub(MAX_NAMES) {
        names.push(format!("and {more} more"));
    }
    names.join(", ")
}
