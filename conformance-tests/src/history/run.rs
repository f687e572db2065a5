//! Makes a history: many clients that read, commit, beat, lose answers and send again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use membership_core::{
    Attempt, CommitOutcome, CommitRequest, Heartbeat, HeartbeatWrite, MembershipEntry,
    MembershipTable, NextStep, ReadAnswer, ReadRequest, Recency, SiloAddress, Snapshot, TableError,
    TableErrorKind, WallTime,
};

use tokio::task::{AbortHandle, JoinSet};

use super::kills::{self, Outages};
use super::record::{Answer, Asked, Event, History};
use crate::case::{Cx, Random, commit, must, read};
use crate::flaky::Flaky;
use crate::proxy::{Fault, Proxy, Stage};
use crate::{Capability, Proxied, Stop};

/// How a history is made.
pub(crate) struct Plan {
    /// Separate clients.
    pub clients: usize,
    /// Acknowledged commits before everybody stops.
    pub commits: usize,
    /// Commits and heartbeats of which the answer is lost, in percent.
    pub lost: u64,
    /// How often the server that leads is killed meanwhile.
    pub kills: usize,
}

/// Of so many requests that were to be cut one is cut, or something is wrong with the cutting.
const MANY: u64 = 10;

/// What all clients share.
pub(super) struct Common {
    cx: Cx,
    clock: AtomicU64,
    commits: AtomicU64,
    target: u64,
    /// How many requests were to be cut on their way, and how many were.
    to_cut: AtomicU64,
    cut: AtomicU64,
    /// The server will be killed again: nobody stops before.
    kills_to_come: AtomicBool,
    /// An error came that no client can go on from: the history ends here, and the check says why it is wrong.
    hopeless: AtomicBool,
    /// How often the commits of each client were answered with an outcome, and what it was told last instead of one.
    served: Vec<AtomicU64>,
    complaints: Mutex<Vec<Option<TableError>>>,
    /// The silos that clients beat for; their rows are never removed.
    silos: Vec<SiloAddress>,
}

/// Runs the plan on a new table; the history ends with a read by a client that took no part.
pub(crate) async fn run(cx: &Cx, plan: &Plan) -> Result<(History, Outages), Stop> {
    let table = cx.table().await?;
    let silos: Vec<MembershipEntry> = (0..plan.clients).map(|_| cx.entry()).collect();
    for silo in &silos {
        commit(
            &table,
            &cx.insert(&read(&table).await?.0.token, [silo.clone()]),
        )
        .await?;
    }
    let start = read(&table).await?.0;
    let common = Arc::new(Common {
        cx: cx.clone(),
        clock: AtomicU64::new(1),
        commits: AtomicU64::new(0),
        target: u64::try_from(plan.commits).unwrap_or(u64::MAX),
        to_cut: AtomicU64::new(0),
        cut: AtomicU64::new(0),
        kills_to_come: (plan.kills > 0).into(),
        hopeless: false.into(),
        served: (0..plan.clients).map(|_| AtomicU64::new(0)).collect(),
        complaints: Mutex::new(vec![None; plan.clients]),
        silos: silos.iter().map(|e| e.address).collect(),
    });
    let mut workers = Vec::new();
    for (client, silo) in silos.iter().enumerate() {
        let stream = 2 * client as u64 + 100;
        // Every second client loses its answers on the way to the server, where there is a way; the others after it.
        let way = if client % 2 == 1 {
            proxied(cx, &table).await?
        } else {
            None
        };
        let (inner, proxy) = match way {
            Some(Proxied { table, proxy }) => (table, Some(proxy)),
            None => (cx.another(&table).await?, None),
        };
        let lost = if proxy.is_some() { 0 } else { plan.lost };
        let flaky = Arc::new(Flaky::new(inner, lost, cx.seed(stream)));
        let worker = Worker {
            common: common.clone(),
            table: flaky,
            proxy,
            cut: plan.lost,
            client,
            silo: silo.address,
            counter: 0,
            random: cx.random(stream + 1),
            now: start.clone(),
            old: start.clone(),
            errors: 0,
            events: Vec::new(),
        };
        workers.push(worker);
    }
    // Only when all are connected: where the servers say where they are, all clients have one proxy, and what one cuts another may feel.
    // Ended with this run, however it ends: the proxy is somebody else's next.
    let mut tasks = JoinSet::new();
    let running: Vec<AbortHandle> = workers
        .into_iter()
        .map(|worker| tasks.spawn(worker.run()))
        .collect();
    // A client that ended has something to say, and that is heard below.
    let ended = || running.iter().any(AbortHandle::is_finished);
    let outages = kills::in_a_row(cx, &common, table.cluster(), plan.kills, ended).await?;
    common.kills_to_come.store(false, Ordering::SeqCst);
    let mut history = History {
        start,
        events: Vec::new(),
        linearizable: table.guarantees().reads == Recency::Linearizable,
    };
    while let Some(ended) = tasks.join_next().await {
        history.events.extend(ended??);
    }
    let (to_cut, cut) = (
        common.to_cut.load(Ordering::SeqCst),
        common.cut.load(Ordering::SeqCst),
    );
    must!(
        cut > 0 || to_cut < MANY,
        "{to_cut} requests were to be cut on their way, and none was: do they pass through the proxy?"
    );
    let request = ReadRequest::all().with_barrier(true);
    // Its connection may have died unnoticed with a server. Without this read the last commits would be on their word alone.
    let deadline = Instant::now() + cx.effort().operation_timeout;
    loop {
        let began = common.tick();
        let answer = table.read(&request).await;
        let away = answer
            .as_ref()
            .err()
            .filter(|e| e.next_step() != NextStep::GiveUp)
            .map(ToString::to_string);
        let (asked, answer) = (Asked::Read(request.clone()), Answer::Read(answer));
        history.events.push(Event {
            client: plan.clients,
            began,
            ended: common.tick(),
            asked,
            answer,
        });
        let Some(away) = away else {
            return Ok((history, outages));
        };
        if Instant::now() > deadline {
            return Err(Stop::failed(format!(
                "the table cannot be read in the end: {away}"
            )));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A client behind a proxy, where the backend stages one.
async fn proxied(cx: &Cx, table: &crate::case::Table) -> Result<Option<Proxied>, Stop> {
    if cx.needs(Capability::Proxy).is_err() {
        return Ok(None);
    }
    match cx.backend().proxied(table.cluster()).await {
        Ok(proxied) => Ok(Some(proxied)),
        Err(Stop::NotStaged(_)) => Ok(None),
        Err(stop) => Err(stop),
    }
}

impl Common {
    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn done(&self) -> bool {
        self.is_hopeless()
            || (self.commits() >= self.target && !self.kills_to_come.load(Ordering::SeqCst))
    }

    pub(super) fn is_hopeless(&self) -> bool {
        self.hopeless.load(Ordering::SeqCst)
    }

    /// Acknowledged commits so far.
    pub(super) fn commits(&self) -> u64 {
        self.commits.load(Ordering::SeqCst)
    }

    /// Acknowledged commits before everybody stops.
    pub(super) fn target(&self) -> u64 {
        self.target
    }

    /// How often each client was served so far.
    pub(super) fn served(&self) -> Vec<u64> {
        self.served
            .iter()
            .map(|count| count.load(Ordering::SeqCst))
            .collect()
    }

    /// The last error that a client was told.
    pub(super) fn complaint(&self, client: usize) -> String {
        let complaints = self
            .complaints
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        complaints
            .get(client)
            .and_then(Option::as_ref)
            .map_or_else(|| "nothing".to_owned(), ToString::to_string)
    }

    /// An error that a client was told.
    fn complain(&self, client: usize, error: &TableError) {
        if error.next_step() == NextStep::GiveUp {
            self.hopeless.store(true, Ordering::SeqCst);
        }
        if let Some(last) = self
            .complaints
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_mut(client)
        {
            *last = Some(error.clone());
        }
    }
}

struct Worker {
    common: Arc<Common>,
    table: Arc<Flaky>,
    proxy: Option<Proxy>,
    /// How many percent of the commits and heartbeats are cut on their way.
    cut: u64,
    client: usize,
    silo: SiloAddress,
    counter: u64,
    random: Random,
    now: Snapshot,
    old: Snapshot,
    /// Errors in a row that call for patience.
    errors: u32,
    events: Vec<Event>,
}

/// How often the outcome of a commit is asked for before its client goes on without knowing.
const TURNS: u32 = 5;

impl Worker {
    async fn run(mut self) -> Result<Vec<Event>, Stop> {
        let mut failures = 0;
        while !self.common.done() {
            if self.random.percent(60) {
                self.read().await;
            }
            if self.random.percent(20) {
                self.beat().await;
            }
            if self.random.percent(3) {
                self.old = self.now.clone();
            }
            let request = self.request();
            if self.commit(request).await {
                failures = 0;
            } else {
                failures += 1;
                if failures > 20_000 {
                    return Err(Stop::failed(format!(
                        "client {} has had no commit in {failures} attempts",
                        self.client
                    )));
                }
            }
        }
        self.table.settle().await;
        Ok(self.events)
    }

    /// Gives others a turn now and then, also where the store never waits.
    async fn pause(&mut self) {
        if self.random.percent(30) {
            tokio::task::yield_now().await;
        }
    }

    async fn began(&mut self) -> u64 {
        let began = self.common.tick();
        self.pause().await;
        began
    }

    /// Something may happen to the next request.
    fn trouble(&mut self) {
        if let Some(proxy) = &self.proxy
            && self.random.percent(self.cut)
        {
            proxy.set_fault(Fault::Cut(Stage::ALL[self.random.below(Stage::ALL.len())]));
            self.common.to_cut.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn no_trouble(&self) {
        if let Some(proxy) = &self.proxy {
            self.common
                .cut
                .fetch_add(u64::from(proxy.has_fired()), Ordering::SeqCst);
            proxy.heal();
        }
    }

    async fn record(&mut self, began: u64, asked: Asked, answer: Answer) {
        self.pause().await;
        let ended = self.common.tick();
        self.events.push(Event {
            client: self.client,
            began,
            ended,
            asked,
            answer,
        });
    }

    /// Waits after an error, longer each time, or a store that is away for long fills the memory with its answers.
    async fn wait(&mut self) {
        tokio::time::sleep(Duration::from_millis(1u64 << self.errors.min(6))).await;
        self.errors += 1;
    }

    async fn read(&mut self) {
        let known = self.random.percent(50).then(|| self.now.token.clone());
        let request = ReadRequest::all()
            .with_known(known)
            .with_heartbeats(self.random.percent(50))
            .with_barrier(self.random.percent(20));
        let began = self.began().await;
        let answer = self.table.read(&request).await;
        match &answer {
            Ok(ReadAnswer::Snapshot { snapshot, .. }) => self.now = snapshot.clone(),
            Ok(ReadAnswer::Unchanged { .. }) => {}
            Err(e) => {
                self.common.complain(self.client, e);
                self.wait().await;
            }
        }
        self.record(began, Asked::Read(request), Answer::Read(answer))
            .await;
    }

    async fn beat(&mut self) {
        self.counter += 1;
        let heartbeat = Heartbeat {
            counter: self.counter,
            at: WallTime::from_millis(self.counter),
        };
        let began = self.began().await;
        self.trouble();
        let answer = self
            .table
            .update_i_am_alive(&HeartbeatWrite::Silo {
                silo: self.silo,
                heartbeat,
            })
            .await;
        self.no_trouble();
        if let Err(e) = &answer {
            self.common.complain(self.client, e);
        }
        self.record(
            began,
            Asked::Beat(self.silo, self.counter),
            Answer::Beat(answer),
        )
        .await;
    }

    /// One to four changes, each with content that nobody else writes. A few are stale or do not fit the rows.
    fn request(&mut self) -> CommitRequest {
        let cx = self.common.cx.clone();
        let base = if self.random.percent(4) {
            &self.old
        } else {
            &self.now
        };
        let rows: Vec<&MembershipEntry> = base.rows.entries().collect();
        let (mut inserts, mut updates, mut removes) = (Vec::new(), Vec::new(), Vec::new());
        for n in 0..=self
            .random
            .below(4)
            .min(self.table.limits().rows_per_commit.saturating_sub(1))
        {
            // Different rows for different changes.
            let Some(row) = rows.get(4 * self.random.below(rows.len() / 4) + n) else {
                continue;
            };
            let mut row = MembershipEntry::clone(row);
            match self.random.below(100) {
                0..=24 if rows.len() < 40 => inserts.push(cx.entry()),
                25..=44 if rows.len() > 30 && !self.common.silos.contains(&row.address) => {
                    removes.push(row.address.row_key());
                }
                97 => inserts.push(row),
                98 => updates.push(cx.entry()),
                99 => removes.push(cx.entry().address.row_key()),
                _ => {
                    row.info.role = format!("{} {}", self.client, cx.number());
                    updates.push(row);
                }
            }
        }
        if inserts.is_empty() && updates.is_empty() && removes.is_empty() {
            inserts.push(cx.entry());
        }
        CommitRequest::new(
            base.token.clone(),
            cx.commit_id(),
            Some(self.silo),
            inserts,
            updates,
            removes,
        )
    }

    /// Sends, and most of the time sends again until the outcome is known, also while the store is away. True when it was committed.
    async fn commit(&mut self, mut request: CommitRequest) -> bool {
        let mut turns = if self.random.percent(70) { TURNS } else { 0 };
        loop {
            let began = self.began().await;
            self.trouble();
            let answer = self.table.commit(&request).await;
            self.no_trouble();
            let asked = Asked::Commit(request.clone());
            self.record(began, asked, Answer::Commit(answer.clone()))
                .await;
            if answer.is_ok() {
                self.errors = 0;
                if let Some(count) = self.common.served.get(self.client) {
                    count.fetch_add(1, Ordering::SeqCst);
                }
            }
            match answer {
                Ok(CommitOutcome::Committed(token)) => {
                    self.common.commits.fetch_add(1, Ordering::SeqCst);
                    // Whoever holds a view can commit without reading first.
                    if self.now.token.same_commit(&request.expected) {
                        self.now = request.apply_to(&self.now, token);
                    }
                    return true;
                }
                Ok(CommitOutcome::Conflict(conflict)) => {
                    match conflict.snapshot {
                        Some(snapshot) if self.random.percent(50) => self.now = snapshot,
                        _ => self.read().await,
                    }
                    return false;
                }
                Err(e) => {
                    self.common.complain(self.client, &e);
                    let unknown = e.next_step() == NextStep::FindOut;
                    if e.kind() != TableErrorKind::OutcomeUnknown {
                        self.wait().await;
                    }
                    let open = unknown || request.attempt == Attempt::Again;
                    if !open || turns == 0 {
                        self.read().await;
                        return false;
                    }
                    turns -= u32::from(unknown);
                    request.attempt = Attempt::Again;
                }
            }
            if self.common.done() {
                return false;
            }
        }
    }
}
