//! One client of a history: it reads, commits, writes heartbeats, loses answers and sends again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use membership_core::{
    Attempt, CommitOutcome, CommitRequest, Heartbeat, HeartbeatWrite, MembershipEntry,
    MembershipTable, NextStep, ReadAnswer, ReadRequest, SiloAddress, Snapshot, TableErrorKind,
    WallTime,
};

use super::record::{Answer, Asked, Event};
use super::shared::Common;
use crate::Stop;
use crate::case::Random;
use crate::flaky::Flaky;
use crate::proxy::{Fault, Proxy, Stage};

pub(super) struct Worker {
    pub common: Arc<Common>,
    pub table: Arc<Flaky>,
    pub proxy: Option<Proxy>,
    /// The percentage of commits and heartbeats that are cut on their way.
    pub cut: u64,
    pub client: usize,
    pub silo: SiloAddress,
    pub counter: u64,
    pub random: Random,
    pub now: Snapshot,
    pub old: Snapshot,
    /// Consecutive errors; the client waits longer after each.
    pub errors: u32,
    pub events: Vec<Event>,
}

/// How often a client asks for the outcome of a commit before it goes on without it.
const TURNS: u32 = 5;

impl Worker {
    pub async fn run(mut self) -> Result<Vec<Event>, Stop> {
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
                        "client {} has committed nothing in {failures} attempts",
                        self.client
                    )));
                }
            }
        }
        self.table.settle().await;
        Ok(self.events)
    }

    /// Yields now and then, because some stores never wait.
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

    /// Sets a fault for the next request at random.
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

    /// Waits after an error, longer each time. Otherwise the errors of an unreachable store would
    /// fill the memory.
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
            Ok(_) => {}
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

    /// One to four changes, each with unique content. A few are stale or do not fit the rows.
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
            // Each change takes a different row.
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

    /// Sends a commit. Usually repeats it until the outcome is known, also while the store is
    /// unreachable. Returns true if it was committed.
    async fn commit(&mut self, mut request: CommitRequest) -> bool {
        let mut turns = if self.random.percent(70) { TURNS } else { 0 };
        loop {
            let began = self.began().await;
            self.trouble();
            let answer = self.table.commit(&request).await;
            self.no_trouble();
            let asked = Asked::Commit(Box::new(request.clone()));
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
                    // A client that knows the state can commit without reading first.
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
                Ok(_) => return false,
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
