//! Many writers on one version row, with the protocol's backoff: measures the throughput, and
//! checks that every writer gets its turn.
//!
//! ```
//! use std::time::Duration;
//! use conformance_tests::{backends::Memory, contention};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
//! # runtime.block_on(async {
//! let cluster = "contention".parse().map_err(std::io::Error::other)?;
//! let figures = contention::run(&Memory::default(), &cluster, 4, Duration::from_millis(50)).await;
//! println!("{}", figures.map_err(|e| std::io::Error::other(format!("{e:?}")))?);
//! # std::io::Result::Ok(())
//! # })?;
//! # std::io::Result::Ok(())
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use membership_core::protocol::conflict_backoff;
use membership_core::{
    Attempt, ClusterKey, ClusterName, CommitId, CommitOutcome, CommitRequest, InitializeRequest,
    InstanceId, MembershipEntry, MembershipTable, NextStep, ReadAnswer, ReadRequest,
    SharedSettings, SiloAddress, Snapshot, TableError, TableId, WallTime,
};

use crate::case::{Random, unknown_answer};
use crate::slowness::slowness;
use crate::{Backend, Stop};

/// The longest time that one of so many writers may wait between two of its commits on a quiet
/// machine: 6 s of 8 or fewer, 10 s of 32 or more. A busy one makes it up to [`MOST_SLOWNESS`] times
/// as long.
#[must_use]
pub fn longest_wait(writers: usize) -> Duration {
    let (few, many) = (Duration::from_secs(6), Duration::from_secs(10));
    let more = writers.clamp(8, 32) - 8;
    few + (many - few) * u32::try_from(more).unwrap_or(24) / 24
}

/// The limit of a busy machine is at most so many times that of a quiet one: backoff is most of a
/// wait, and takes as long on both.
pub const MOST_SLOWNESS: f64 = 1.75;

// The values of the protocol's writer (`membership-core`, `protocol/writer`).
const ERROR_CAP: Duration = Duration::from_secs(4);
const ERROR_BACKOFF: Duration = Duration::from_secs(1);

/// The result of an experiment in which nothing was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Contention {
    /// Writers at the same time.
    pub writers: usize,
    /// Duration.
    pub took: Duration,
    /// Acknowledged commits.
    pub commits: u64,
    /// Conflicts: another writer was faster.
    pub conflicts: u64,
    /// Errors after which the writer tried again.
    pub errors: u64,
    /// The longest time that one writer waited between two of its commits; from the beginning to
    /// its first and from its last to the end count too.
    pub longest_wait: Duration,
    /// Half of all such times are at most this.
    pub median_wait: Duration,
    /// Of a hundred such times, 90 are at most this.
    pub p90_wait: Duration,
    /// Of a hundred such times, 99 are at most this.
    pub p99_wait: Duration,
    /// Of a thousand such times, 999 are at most this.
    pub p999_wait: Duration,
    /// The longest time of the writer that had the shortest longest one: how far apart writers are.
    pub luckiest_wait: Duration,
    /// How many times as long a computation takes here as on a quiet machine, before or after the
    /// experiment: at least 1.
    pub slowness: f64,
}

impl Contention {
    /// Commits per second, of all writers together.
    #[must_use]
    pub fn commits_per_second(&self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "a figure for people")]
        let commits = self.commits as f64;
        commits / self.took.as_secs_f64().max(f64::EPSILON)
    }
}

impl fmt::Display for Contention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} writers for {:.1} s: {} commits ({:.1} per second), {} conflicts, {} errors; waits: median {:.3} s, 90 % {:.3} s, 99 % {:.2} s, 99.9 % {:.2} s, longest {:.2} s (of the luckiest writer {:.2} s); the machine is {:.2} times as slow as a quiet one",
            self.writers,
            self.took.as_secs_f64(),
            self.commits,
            self.commits_per_second(),
            self.conflicts,
            self.errors,
            self.median_wait.as_secs_f64(),
            self.p90_wait.as_secs_f64(),
            self.p99_wait.as_secs_f64(),
            self.p999_wait.as_secs_f64(),
            self.longest_wait.as_secs_f64(),
            self.luckiest_wait.as_secs_f64(),
            self.slowness
        )
    }
}

/// Lets this many writers, each with a separate client, commit for this long to a new table, which
/// is deleted afterwards. Each writer reads, rewrites its own row, and backs off from conflicts and
/// errors as the protocol does.
///
/// Fails unless all of this holds: no acknowledged commit is lost; exactly one commit follows every
/// version on which a losing attempt was based; no writer waits longer than
/// [`longest_wait`] between two of its commits, times the slowness of the machine.
///
/// # Errors
/// [`Stop::Failed`] with the violation and the figures, or with a client's error.
pub async fn run(
    backend: &dyn Backend,
    cluster: &ClusterName,
    writers: usize,
    duration: Duration,
) -> Result<Contention, Stop> {
    let table = backend.client(cluster).await?;
    let unique = Unique::new();
    let settings = SharedSettings::default();
    table
        .initialize(&InitializeRequest::new(
            TableId::new(unique.id(0, 0)),
            settings,
            ClusterKey::new([7; 32]),
        ))
        .await?;
    let verdict = compete(backend, cluster, &*table, &unique, writers, duration).await;
    let deleted = table.delete().await;
    let figures = verdict?;
    deleted?;
    Ok(figures)
}

/// Ids that no other experiment uses.
struct Unique(u64);

impl Unique {
    fn new() -> Self {
        let nanos = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |d| d.as_nanos());
        Self(
            u64::try_from(nanos & u128::from(u64::MAX)).unwrap_or(0)
                ^ (u64::from(std::process::id()) << 40),
        )
    }

    fn id(&self, writer: usize, n: u64) -> u128 {
        (u128::from(self.0) << 64) | ((writer as u128) << 40) | u128::from(n)
    }
}

async fn compete(
    backend: &dyn Backend,
    cluster: &ClusterName,
    table: &dyn MembershipTable,
    unique: &Unique,
    writers: usize,
    duration: Duration,
) -> Result<Contention, Stop> {
    let address = |n: usize| SiloAddress::new([10, 1, (n >> 8) as u8, n as u8].into(), 7100, 1);
    let start = snapshot(table, true).await?;
    let row = |n: usize| {
        MembershipEntry::new(
            address(n),
            InstanceId::new(unique.id(n, 0)),
            WallTime::from_millis(1),
        )
    };
    let at_once = table.limits().rows_per_commit.max(1);
    let mut now = start;
    for first in (0..writers).step_by(at_once) {
        let rows = (first..writers.min(first + at_once)).map(row);
        let request = CommitRequest::new(
            now.token.clone(),
            CommitId::new(unique.id(first, 1)),
            None,
            rows,
            [],
            [],
        );
        match table.commit(&request).await? {
            CommitOutcome::Committed(token) => now = request.apply_to(&now, token),
            CommitOutcome::Conflict(_) => {
                return Err(Stop::failed(
                    "another client uses the cluster of the experiment",
                ));
            }
            other => return Err(unknown_answer(&other)),
        }
    }
    let before = slowness().await;
    let began = Instant::now();
    let end = began + duration;
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..writers {
        let table = backend.client(cluster).await?;
        let ids = Unique(unique.0);
        tasks.spawn(async move {
            let random = Random::new(ids.0 ^ n as u64);
            let mut writer = Writer {
                table,
                n,
                silo: address(n),
                ids,
                sent: 1,
                random,
                notes: Notes::default(),
            };
            writer.write(end).await.map(|()| (n, writer.notes))
        });
    }
    let mut notes = BTreeMap::new();
    while let Some(ended) = tasks.join_next().await {
        let (n, note) = ended??;
        notes.insert(n, note);
    }
    let took = began.elapsed();
    let (mut waits, mut luckiest_wait): (Vec<Duration>, Duration) = (Vec::new(), took);
    for note in notes.values() {
        let mut last = began;
        let committed = note.committed.iter().map(|(at, _)| *at);
        let moments = committed.chain([began + took]);
        let wait = |at: Instant| at.saturating_duration_since(std::mem::replace(&mut last, at));
        let of_one: Vec<Duration> = moments.map(wait).collect();
        luckiest_wait = luckiest_wait.min(of_one.iter().max().copied().unwrap_or(took));
        waits.extend(of_one);
    }
    waits.sort_unstable();
    let wait_of = |permille: usize| {
        let place = (waits.len() * permille).div_ceil(1_000).max(1) - 1;
        waits.get(place).copied().unwrap_or(took)
    };
    let figures = Contention {
        writers,
        took,
        commits: notes.values().map(|n| n.committed.len() as u64).sum(),
        conflicts: notes.values().map(|n| n.lost_on.len() as u64).sum(),
        errors: notes.values().map(|n| n.errors).sum(),
        longest_wait: wait_of(1_000),
        median_wait: wait_of(500),
        p90_wait: wait_of(900),
        p99_wait: wait_of(990),
        p999_wait: wait_of(999),
        luckiest_wait,
        slowness: slowness().await.max(before),
    };
    let last = snapshot(table, true).await?;
    holds(&now, &last, &notes, address)
        .and_then(|()| {
            let quiet = longest_wait(writers);
            let limit = quiet.mul_f64(figures.slowness.min(MOST_SLOWNESS));
            if figures.longest_wait <= limit {
                return Ok(());
            }
            Err(format!(
                "a writer waited {:?}, longer than {limit:?} ({quiet:?} on a quiet machine)",
                figures.longest_wait
            ))
        })
        .map_err(|what| Stop::failed(format!("{what} ({figures})")))?;
    Ok(figures)
}

/// Checks that nothing is lost, and that every version has one commit.
fn holds(
    start: &Snapshot,
    last: &Snapshot,
    notes: &BTreeMap<usize, Notes>,
    address: impl Fn(usize) -> SiloAddress,
) -> Result<(), String> {
    let mut makers: BTreeMap<u64, usize> = BTreeMap::new();
    for (n, note) in notes {
        for (_, version) in &note.committed {
            if let Some(other) = makers.insert(*version, *n) {
                return Err(format!(
                    "version {version} was acknowledged to both writer {other} and writer {n}"
                ));
            }
        }
    }
    let due = start.version() + 1..=last.version();
    if !makers.keys().copied().eq(due.clone()) {
        return Err(format!(
            "versions {due:?} exist, but {} commits were acknowledged",
            makers.len()
        ));
    }
    for (n, note) in notes {
        if let Some(version) = note
            .lost_on
            .iter()
            .find(|v| !makers.contains_key(&(*v + 1)))
        {
            return Err(format!(
                "writer {n} lost on version {version}, but no commit followed that version"
            ));
        }
        let seen = last.rows.get(&address(*n)).map(|e| e.info.role.as_str());
        let written = note.written.as_deref().unwrap_or_default();
        if seen != Some(written) {
            return Err(format!(
                "writer {n} wrote {written:?} last, its row holds {seen:?}"
            ));
        }
    }
    Ok(())
}

/// The answers that one writer received.
#[derive(Default)]
struct Notes {
    committed: Vec<(Instant, u64)>,
    /// The versions on which its losing attempts were based.
    lost_on: Vec<u64>,
    written: Option<String>,
    errors: u64,
}

struct Writer {
    table: Arc<dyn MembershipTable>,
    n: usize,
    silo: SiloAddress,
    ids: Unique,
    sent: u64,
    random: Random,
    notes: Notes,
}

impl Writer {
    async fn write(&mut self, end: Instant) -> Result<(), Stop> {
        let (mut conflicts, mut errors) = (0, 0);
        let mut since = Instant::now();
        while Instant::now() < end {
            // In a cluster a silo learns of newer versions by gossip while it waits; here it reads.
            let wait = match snapshot(&*self.table, false).await {
                Ok(now) => match self.commit(&now).await? {
                    Attempted::Committed => {
                        (conflicts, errors) = (0, 0);
                        // A store that answers at once must not keep the others from their turn.
                        tokio::task::yield_now().await;
                        continue;
                    }
                    Attempted::Conflict => {
                        if conflicts == 0 {
                            since = Instant::now();
                        }
                        (conflicts, errors) = (conflicts + 1, 0);
                        self.jitter(conflict_backoff(
                            conflicts,
                            since.elapsed(),
                            now.rows.len(),
                            false,
                        ))
                    }
                    Attempted::Failed => {
                        errors = (errors + 1).min(10);
                        self.after_error(errors)
                    }
                },
                Err(e) => {
                    self.failed(e)?;
                    errors = (errors + 1).min(10);
                    self.after_error(errors)
                }
            };
            tokio::time::sleep(wait.min(end.saturating_duration_since(Instant::now()))).await;
        }
        Ok(())
    }

    fn jitter(&mut self, most: Duration) -> Duration {
        let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX - 1);
        Duration::from_nanos(self.random.next() % (nanos + 1))
    }

    fn after_error(&mut self, errors: u32) -> Duration {
        let most = (ERROR_BACKOFF * 2u32.pow(errors - 1)).min(ERROR_CAP);
        most / 2 + self.jitter(most / 2)
    }

    fn failed(&mut self, error: TableError) -> Result<(), Stop> {
        if error.next_step() == NextStep::GiveUp {
            return Err(Stop::failed(format!(
                "writer {}: an error without a cause: {error}",
                self.n
            )));
        }
        self.notes.errors += 1;
        Ok(())
    }

    async fn commit(&mut self, now: &Snapshot) -> Result<Attempted, Stop> {
        self.sent += 1;
        let Some(mut entry) = now.rows.get(&self.silo).cloned() else {
            return Err(Stop::failed(format!(
                "the row of writer {} is gone",
                self.n
            )));
        };
        entry.info.role = format!("{} {}", self.n, self.sent);
        let written = entry.info.role.clone();
        let id = CommitId::new(self.ids.id(self.n, self.sent));
        let mut request =
            CommitRequest::new(now.token.clone(), id, Some(self.silo), [], [entry], []);
        // An unknown outcome is settled before the next commit.
        for turn in 1..=20 {
            let open = match self.table.commit(&request).await {
                Ok(CommitOutcome::Committed(_)) => return Ok(self.won(&request, written)),
                Ok(CommitOutcome::Conflict(_)) => return Ok(self.lost(now)),
                Ok(other) => return Err(unknown_answer(&other)),
                Err(e) => {
                    let open =
                        e.next_step() == NextStep::FindOut || request.attempt == Attempt::Again;
                    self.failed(e)?;
                    open
                }
            };
            if !open {
                return Ok(Attempted::Failed);
            }
            // Only this writer writes the row, so the row shows the outcome even if the version has
            // moved far.
            match snapshot(&*self.table, true).await {
                Ok(then) if then.version() > now.version() => {
                    let row = then.rows.get(&self.silo);
                    let landed = row.is_some_and(|e| {
                        e.written_at == request.next_version() && e.info.role == written
                    });
                    return Ok(if landed {
                        self.won(&request, written)
                    } else {
                        self.lost(now)
                    });
                }
                Ok(_) => request = request.again(),
                Err(e) => self.failed(e)?,
            }
            tokio::time::sleep(Duration::from_millis(20 * turn)).await;
        }
        Err(Stop::failed(format!(
            "writer {} cannot find out the outcome of its commit {id}",
            self.n
        )))
    }

    fn won(&mut self, request: &CommitRequest, written: String) -> Attempted {
        self.notes
            .committed
            .push((Instant::now(), request.next_version()));
        self.notes.written = Some(written);
        Attempted::Committed
    }

    fn lost(&mut self, now: &Snapshot) -> Attempted {
        self.notes.lost_on.push(now.version());
        Attempted::Conflict
    }
}

enum Attempted {
    Committed,
    Conflict,
    Failed,
}

async fn snapshot(table: &dyn MembershipTable, barrier: bool) -> Result<Snapshot, TableError> {
    match table
        .read(
            &ReadRequest::all()
                .with_heartbeats(false)
                .with_barrier(barrier),
        )
        .await?
    {
        ReadAnswer::Snapshot { snapshot, .. } => Ok(snapshot),
        _ => Err(TableError::new(
            membership_core::TableErrorKind::Damaged,
            membership_core::Operation::Read,
            table.store(),
            "a read without a known version was answered with unchanged",
        )),
    }
}
