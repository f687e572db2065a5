//! Makes a history: runs the clients, kills servers meanwhile, and collects what everybody
//! recorded.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use membership_core::{MembershipEntry, MembershipTable, NextStep, ReadRequest};

use tokio::task::{AbortHandle, JoinSet};

use super::kills::{self, Failing, Outages};
use super::record::{Answer, Asked, Event, History};
use crate::case::{Cx, commit, must, read};
use crate::flaky::Flaky;
use crate::{Capability, Proxied, Stop};

use super::shared::Common;
use super::worker::Worker;

/// The size of a history.
pub(crate) struct Plan {
    /// Separate clients.
    pub clients: usize,
    /// Acknowledged commits after which all clients stop.
    pub commits: usize,
    /// The percentage of commits and heartbeats whose answer is lost.
    pub lost: u64,
    /// How often the leading server fails meanwhile.
    pub kills: usize,
    /// How it fails.
    pub how: Failing,
}

/// If this many requests were due to be cut, at least one must have been cut.
const MANY: u64 = 10;
/// Runs the plan on a new table. The history ends with a read by a client that took no part.
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
        // Every second client loses its answers on the way to the server, if the backend has a
        // proxy; the others lose them after it.
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
    // The tasks start when all clients are connected: if the servers announce a proxy, all clients
    // share it, and a cut may hit the connecting client of another one. The tasks end with this
    // run, because later cases use the proxy.
    let mut tasks = JoinSet::new();
    let running: Vec<AbortHandle> = workers
        .into_iter()
        .map(|worker| tasks.spawn(worker.run()))
        .collect();
    // A client that ended early has a failure, which is reported below.
    let ended = || running.iter().any(AbortHandle::is_finished);
    let outages = kills::in_a_row(cx, &common, table.cluster(), plan, ended).await?;
    common.kills_to_come.store(false, Ordering::SeqCst);
    let mut history = History {
        start,
        events: Vec::new(),
        linearizable: cx.must_be_linearizable(&*table),
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
        "none of {to_cut} requests was cut on its way: do they pass through the proxy?"
    );
    let request = ReadRequest::all().with_barrier(true);
    // The connection of this client may have died with a server. Without this read nothing would
    // confirm the last commits.
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
                "the table cannot be read at the end: {away}"
            )));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A client behind a proxy, if the backend stages one.
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
