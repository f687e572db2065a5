//! Makes a history of a large table: writers commit as fast as they can, and the reads of some
//! readers are counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use membership_core::{
    CommitOutcome, CommitRequest, MembershipEntry, MembershipTable, NextStep, ReadAnswer,
    ReadRequest, Rows, Snapshot, TableError,
};
use tokio::task::JoinSet;

use super::record::{Answer, Asked, Event, History};
use crate::case::{Cx, Random, Table, commit, read};
use crate::proxy::Proxy;
use crate::{Capability, Stop};

/// The size of such a history.
pub(crate) struct Load {
    /// Rows of the table.
    pub rows: usize,
    /// The minimum size of a row, in bytes.
    pub bytes: usize,
    /// Clients that commit without a pause.
    pub writers: usize,
    /// The duration.
    pub duration: Duration,
    /// How many histories of this table precede it: each has random numbers of its own.
    pub round: u64,
}

/// The figures of the reads.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reads {
    /// All reads.
    pub all: u64,
    /// Reads that ended with an error.
    pub failed: u64,
    /// Reads of the reader whose round trips are counted.
    pub counted: u64,
    /// Counted reads that failed or took too many round trips.
    pub late: u64,
    /// The most round trips of one read.
    pub most: u64,
}

impl Reads {
    pub(crate) fn add(&mut self, other: Self) {
        self.all += other.all;
        self.failed += other.failed;
        self.counted += other.counted;
        self.late += other.late;
        self.most = self.most.max(other.most);
    }
}

/// Row texts that no store can compress much.
pub(crate) fn fill(entry: &mut MembershipEntry, bytes: usize, random: &mut Random) {
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        text.push_str(&format!("{:016x}", random.next()));
    }
    entry.info.metadata.insert("filler".to_owned(), text);
}

/// Makes a table with this many rows, in as few commits as its limits allow.
pub(crate) async fn filled(cx: &Cx, rows: usize, bytes: usize) -> Result<Table, Stop> {
    let table = cx.table().await?;
    let limits = table.limits();
    let mut random = cx.random(300);
    let mut token = read(&table).await?.0.token;
    let at_once = limits
        .rows_per_commit
        .min(limits.bytes_per_commit / (2 * bytes.max(1)))
        .max(1);
    for first in (0..rows).step_by(at_once) {
        let entries = (first..rows.min(first + at_once)).map(|_| {
            let mut entry = cx.entry();
            fill(&mut entry, bytes, &mut random);
            entry
        });
        token = commit(&table, &cx.insert(&token, entries)).await?;
    }
    Ok(table)
}

/// Runs the load on a table. A read may take `most_trips` round trips. The history ends with a read
/// by a client that took no part.
pub(crate) async fn run(
    cx: &Cx,
    table: &Table,
    load: &Load,
    most_trips: u64,
) -> Result<(History, Reads), Stop> {
    let start = read(table).await?.0;
    let clock = Arc::new(AtomicU64::new(1));
    let end = Instant::now() + load.duration;
    let mut tasks = JoinSet::new();
    let client = |table: Table, client: usize, random: u64| Client {
        cx: cx.clone(),
        clock: clock.clone(),
        table,
        client,
        random: cx.random(random + 1_000 * load.round),
        now: start.clone(),
        events: Vec::new(),
        reads: Reads::default(),
        bytes: load.bytes,
    };
    for n in 0..load.writers {
        let writer = client(cx.another(table).await?, n, 310 + n as u64);
        tasks.spawn(writer.write(end));
    }
    let reader = client(cx.another(table).await?, load.writers, 330);
    tasks.spawn(reader.read_on(end, None));
    if let Some((behind, proxy)) = alone(cx, table).await? {
        let reader = client(behind, load.writers + 1, 331);
        tasks.spawn(reader.read_on(end, Some((proxy, most_trips))));
    }
    let mut history = History {
        start,
        events: Vec::new(),
        linearizable: cx.must_be_linearizable(&**table),
    };
    let mut reads = Reads::default();
    while let Some(ended) = tasks.join_next().await {
        let (events, these) = ended??;
        history.events.extend(events);
        reads.add(these);
    }
    let request = ReadRequest::all().with_barrier(true);
    let began = clock.fetch_add(1, Ordering::SeqCst);
    let answer = Answer::Read(table.read(&request).await);
    let ended = clock.fetch_add(1, Ordering::SeqCst);
    history.events.push(Event {
        client: load.writers + 2,
        began,
        ended,
        asked: Asked::Read(request),
        answer,
    });
    Ok((history, reads))
}

/// A client with its own proxy. None if there is no proxy, or if all clients share one, so that the
/// requests of one client cannot be counted.
async fn alone(cx: &Cx, table: &Table) -> Result<Option<(Table, Proxy)>, Stop> {
    if cx.needs(Capability::Proxy).is_err() {
        return Ok(None);
    }
    let behind = match cx.backend().proxied(table.cluster()).await {
        Ok(behind) => behind,
        Err(Stop::NotStaged(_)) => return Ok(None),
        Err(stop) => return Err(stop),
    };
    read(&behind.table).await?;
    behind.proxy.learn_monitoring(Duration::from_secs(1)).await;
    let counter = behind.proxy.count();
    read(table).await?;
    let shared = counter.so_far() > 0;
    drop(counter);
    Ok((!shared).then_some((behind.table, behind.proxy)))
}

struct Client {
    cx: Cx,
    clock: Arc<AtomicU64>,
    table: Table,
    client: usize,
    random: Random,
    now: Snapshot,
    events: Vec<Event>,
    reads: Reads,
    bytes: usize,
}

type Done = Result<(Vec<Event>, Reads), Stop>;

impl Client {
    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Commits without a pause until the end.
    async fn write(mut self, end: Instant) -> Done {
        while Instant::now() < end {
            let request = self.request();
            let began = self.tick();
            let answer = self.table.commit(&request).await;
            let ended = self.tick();
            let answer = match answer {
                Ok(CommitOutcome::Committed(token)) => {
                    self.now = request.apply_to(&self.now, token.clone());
                    Ok(CommitOutcome::Committed(token))
                }
                Ok(CommitOutcome::Conflict(mut conflict)) => {
                    match conflict.snapshot.take() {
                        Some(snapshot) => {
                            self.now = shared(snapshot, &self.now.rows);
                            conflict.snapshot = Some(self.now.clone());
                        }
                        None => self.catch_up().await?,
                    }
                    Ok(CommitOutcome::Conflict(conflict))
                }
                Ok(other) => Ok(other),
                Err(e) => {
                    self.wait_after(&e).await?;
                    self.catch_up().await?;
                    Err(e)
                }
            };
            self.events.push(Event {
                client: self.client,
                began,
                ended,
                asked: Asked::Commit(Box::new(request)),
                answer: Answer::Commit(answer),
            });
        }
        Ok((self.events, self.reads))
    }

    /// Changes the content of one to three rows.
    fn request(&mut self) -> CommitRequest {
        let rows: Vec<&MembershipEntry> = self.now.rows.entries().collect();
        let count = 1 + self
            .random
            .below(3)
            .min(self.table.limits().rows_per_commit.saturating_sub(1));
        let first = self.random.below(rows.len());
        let mut chosen: Vec<MembershipEntry> = (0..count.min(rows.len()))
            .map(|n| rows[(first + 7 * n) % rows.len()].clone())
            .collect();
        chosen.sort_unstable_by_key(|e| e.address);
        chosen.dedup_by_key(|e| e.address);
        for entry in &mut chosen {
            fill(entry, self.bytes, &mut self.random);
        }
        self.cx.update(&self.now.token, chosen)
    }

    /// Reads until the present state is known.
    async fn catch_up(&mut self) -> Result<(), Stop> {
        loop {
            let known = Some(self.now.token.clone());
            match self
                .read(ReadRequest::all().with_known(known).with_heartbeats(false))
                .await
            {
                Ok(()) => return Ok(()),
                Err(e) => self.wait_after(&e).await?,
            }
        }
    }

    async fn read(&mut self, request: ReadRequest) -> Result<(), TableError> {
        let began = self.tick();
        let answer = self.table.read(&request).await;
        let ended = self.tick();
        self.reads.all += 1;
        let (answer, result) = match answer {
            Ok(ReadAnswer::Snapshot {
                snapshot,
                heartbeats,
            }) => {
                self.now = shared(snapshot, &self.now.rows);
                (
                    Ok(ReadAnswer::Snapshot {
                        snapshot: self.now.clone(),
                        heartbeats,
                    }),
                    Ok(()),
                )
            }
            Ok(unchanged) => (Ok(unchanged), Ok(())),
            Err(e) => {
                self.reads.failed += 1;
                (Err(e.clone()), Err(e))
            }
        };
        self.events.push(Event {
            client: self.client,
            began,
            ended,
            asked: Asked::Read(request),
            answer: Answer::Read(answer),
        });
        result
    }

    /// Reads until the end: full reads and reads since a known version, in turn. Counts the round
    /// trips of each read if there is a proxy.
    async fn read_on(mut self, end: Instant, counted: Option<(Proxy, u64)>) -> Done {
        let mut turn = 0u64;
        while Instant::now() < end {
            turn += 1;
            let known = turn.is_multiple_of(2).then(|| self.now.token.clone());
            let request = ReadRequest::all()
                .with_known(known)
                .with_heartbeats(self.random.percent(20))
                .with_barrier(self.random.percent(10));
            let counter = counted.as_ref().map(|(proxy, _)| proxy.count());
            let result = self.read(request).await;
            if let (Some(counter), Some((proxy, most))) = (counter, &counted) {
                proxy.settled(Duration::from_secs(1)).await;
                let trips = counter.so_far();
                self.reads.counted += 1;
                self.reads.most = self.reads.most.max(trips);
                self.reads.late += u64::from(result.is_err() || trips > *most);
            }
            if let Err(e) = result {
                self.wait_after(&e).await?;
            }
        }
        Ok((self.events, self.reads))
    }

    async fn wait_after(&self, e: &TableError) -> Result<(), Stop> {
        if e.next_step() == NextStep::GiveUp {
            return Err(Stop::failed(format!(
                "client {}: an error without a cause: {e}",
                self.client
            )));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        Ok(())
    }
}

/// The same snapshot, which shares its unchanged rows with the earlier one, so that thousands of
/// snapshots of a large table fit into memory.
fn shared(mut snapshot: Snapshot, known: &Rows) -> Snapshot {
    let mut rows = known.clone();
    for row in snapshot.rows.iter() {
        if rows.by_key(row.key()) != Some(row) {
            rows.insert(row.clone());
        }
    }
    if rows.len() == snapshot.rows.len() {
        snapshot.rows = rows;
    }
    snapshot
}
