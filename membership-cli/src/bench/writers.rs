//! Many clients that commit at once, each to its own row, like silos: after a conflict they back
//! off as the protocol does, read, and try again. Before and after that, as many clients execute
//! the store's own cheapest write.

use std::sync::Arc;
use std::time::{Duration, Instant};

use membership_core::protocol::conflict_backoff;
use membership_core::{
    Attempt, Baseline, CommitOutcome, CommitRequest, MembershipTable, NextStep, ReadAnswer,
    ReadRequest, SiloAddress, Snapshot, TableExt,
};
use tokio::task::JoinSet;

use super::clusters::{BenchClusters, change};
use super::progress::Progress;
use crate::clock;
use crate::exit::{Exit, Failure};

/// How long a writer waits at most when the store is busy or an outcome is unknown.
const BUSY: Duration = Duration::from_millis(50);

/// The counts of one writer, or of all.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub commits: u64,
    pub conflicts: u64,
    /// Commits refused because the store was busy.
    pub busy: u64,
    /// Commits with an unknown outcome.
    pub unknown: u64,
    /// The longest time that a writer went without a commit.
    pub longest_wait: Duration,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.commits += other.commits;
        self.conflicts += other.conflicts;
        self.busy += other.busy;
        self.unknown += other.unknown;
        self.longest_wait = self.longest_wait.max(other.longest_wait);
    }
}

/// The figures of one number of writers.
pub(crate) struct Writers {
    /// A client of their cluster.
    pub table: Arc<dyn MembershipTable>,
    pub writers: usize,
    pub tally: Tally,
    pub time: Duration,
    /// The store's own cheapest writes per second by as many clients; none without a baseline.
    pub own_per_second: Option<f64>,
}

impl Writers {
    pub fn commits_per_second(&self) -> f64 {
        self.tally.commits as f64 / self.time.as_secs_f64()
    }

    /// How many of the store's own writes take the time of one commit.
    pub fn ratio(&self) -> Option<f64> {
        self.own_per_second
            .filter(|_| self.tally.commits > 0)
            .map(|own| own / self.commits_per_second())
    }
}

/// Commits for `time`; runs the store's own writes for half of that time before, and half after.
pub(crate) async fn measure(
    clusters: &mut BenchClusters,
    writers: usize,
    time: Duration,
    progress: &mut Progress,
) -> Result<Writers, Failure> {
    progress.label(format!("{writers} writers: connecting"));
    let first = clusters
        .cluster(&format!("writers-{writers}"), writers)
        .await?;
    let silos: Vec<SiloAddress> = first
        .read_all()
        .await?
        .0
        .rows
        .entries()
        .map(|e| e.address)
        .collect();
    let mut clients = vec![first];
    while clients.len() < writers {
        clients.push(clusters.client(clients[0].as_ref()).await?);
    }
    progress.label(format!("{writers} writers"));
    let baselines: Option<Vec<_>> = clients
        .iter()
        .map(|client| clusters.baseline(client.as_ref()))
        .collect();
    let before = own_writes(baselines.as_deref(), time / 2, progress).await?;
    let (tally, took) = commits(&clients, &silos, time, progress).await?;
    let after = own_writes(baselines.as_deref(), time / 2, progress).await?;
    let own_per_second = before
        .zip(after)
        .map(|(before, after)| before.midpoint(after));
    Ok(Writers {
        table: clients.swap_remove(0),
        writers,
        tally,
        time: took,
        own_per_second,
    })
}

async fn own_writes(
    baselines: Option<&[Arc<dyn Baseline>]>,
    time: Duration,
    progress: &mut Progress,
) -> Result<Option<f64>, Failure> {
    let Some(baselines) = baselines else {
        progress.done(time);
        return Ok(None);
    };
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for baseline in baselines {
        let baseline = baseline.clone();
        tasks.spawn(async move {
            let mut written = 0_u64;
            while began.elapsed() < time {
                match baseline.write().await {
                    Ok(()) => written += 1,
                    Err(error) if error.next_step() == NextStep::GiveUp => {
                        return Err(Failure::from(error));
                    }
                    Err(_) => tokio::time::sleep(clock::jitter(BUSY)).await,
                }
            }
            Ok(written)
        });
    }
    let all = join_all(tasks, began, time, progress).await?;
    Ok(Some(
        all.iter().sum::<u64>() as f64 / began.elapsed().as_secs_f64(),
    ))
}

async fn commits(
    clients: &[Arc<dyn MembershipTable>],
    silos: &[SiloAddress],
    time: Duration,
    progress: &mut Progress,
) -> Result<(Tally, Duration), Failure> {
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for (client, silo) in clients.iter().zip(silos) {
        tasks.spawn(writer(
            client.clone(),
            *silo,
            silos.len() == 1,
            began + time,
        ));
    }
    let mut tally = Tally::default();
    for one in join_all(tasks, began, time, progress).await? {
        tally.add(&one);
    }
    Ok((tally, began.elapsed()))
}

/// The results of all tasks; the first failure ends the others.
async fn join_all<T: 'static>(
    mut tasks: JoinSet<Result<T, Failure>>,
    began: Instant,
    time: Duration,
    progress: &mut Progress,
) -> Result<Vec<T>, Failure> {
    let mut all = Vec::with_capacity(tasks.len());
    let mut tick = tokio::time::interval(Duration::from_millis(100));
    loop {
        tokio::select! {
            ended = tasks.join_next() => match ended {
                None => break,
                Some(Ok(done)) => all.push(done?),
                Some(Err(error)) => return Err(Failure::new(Exit::Failed, format!("a writer failed: {error}"))),
            },
            _ = tick.tick() => progress.update(began, time),
        }
    }
    progress.done(time);
    Ok(all)
}

async fn writer(
    table: Arc<dyn MembershipTable>,
    silo: SiloAddress,
    alone: bool,
    until: Instant,
) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    let mut now = table.read_all().await?.0;
    let (mut last, mut since, mut conflicts) = (Instant::now(), Instant::now(), 0);
    while Instant::now() < until {
        let request = change(&now, &silo)?;
        match send(table.as_ref(), &now, request, until, &mut tally).await? {
            Sent::Committed(snapshot) => {
                tally.commits += 1;
                tally.longest_wait = tally.longest_wait.max(last.elapsed());
                (last, conflicts) = (Instant::now(), 0);
                // With other writers, the snapshot is stale by the time the answer comes.
                now = if alone {
                    *snapshot
                } else {
                    read(table.as_ref(), *snapshot).await?
                };
            }
            Sent::Conflict => {
                tally.conflicts += 1;
                if conflicts == 0 {
                    since = Instant::now();
                }
                conflicts += 1;
                let wait = clock::jitter(conflict_backoff(
                    conflicts,
                    since.elapsed(),
                    now.rows.len(),
                    false,
                ));
                tokio::time::sleep(wait.min(until.saturating_duration_since(Instant::now()))).await;
                now = read(table.as_ref(), now).await?;
            }
            Sent::Unknown => now = read(table.as_ref(), now).await?,
            Sent::Late => break,
        }
    }
    tally.longest_wait = tally.longest_wait.max(last.elapsed());
    Ok(tally)
}

enum Sent {
    Committed(Box<Snapshot>),
    Conflict,
    /// The outcome is unknown; only the rows show it.
    Unknown,
    /// The time is over.
    Late,
}

/// Sends one commit until its outcome is known.
async fn send(
    table: &dyn MembershipTable,
    base: &Snapshot,
    mut request: CommitRequest,
    until: Instant,
    tally: &mut Tally,
) -> Result<Sent, Failure> {
    loop {
        match table.commit(&request).await {
            Ok(CommitOutcome::Committed(token)) => {
                return Ok(Sent::Committed(Box::new(request.apply_to(base, token))));
            }
            Ok(CommitOutcome::Conflict(_)) => return Ok(Sent::Conflict),
            Ok(_) => return Ok(Sent::Unknown),
            Err(error) => match error.next_step() {
                NextStep::GiveUp => return Err(error.into()),
                NextStep::Retry => tally.busy += 1,
                NextStep::FindOut => {
                    tally.unknown += 1;
                    if request.attempt == Attempt::Again {
                        return Ok(Sent::Unknown);
                    }
                    request = request.again();
                }
            },
        }
        if Instant::now() >= until {
            return Ok(Sent::Late);
        }
        tokio::time::sleep(clock::jitter(BUSY)).await;
    }
}

/// The table as it is now, for a client that has an older snapshot.
async fn read(table: &dyn MembershipTable, known: Snapshot) -> Result<Snapshot, Failure> {
    let request = ReadRequest::all()
        .with_known(known.token.clone())
        .with_heartbeats(false);
    loop {
        match table.read(&request).await {
            Ok(ReadAnswer::Snapshot { snapshot, .. }) => return Ok(snapshot),
            Ok(_) => return Ok(known),
            Err(error) if error.next_step() == NextStep::GiveUp => return Err(error.into()),
            Err(_) => tokio::time::sleep(clock::jitter(BUSY)).await,
        }
    }
}
