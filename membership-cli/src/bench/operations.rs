//! One client: how long each operation takes, in turns with the store's own cheapest write and
//! read.

use std::sync::Arc;
use std::time::{Duration, Instant};

use membership_core::{
    Baseline, CommitOutcome, HeartbeatWrite, MembershipTable, NextStep, ReadAnswer, ReadRequest,
    SiloAddress, Snapshot, TableError, TableExt,
};

use super::clusters::{change, disturbed, heartbeat};
use super::progress::Progress;
use crate::clock;
use crate::exit::{Exit, Failure};

/// The first rounds prepare statements and load scripts; they are not counted.
const WARM_UP: usize = 5;
/// With fewer rounds the 99th percentile would be the slowest round.
const MIN_ROUNDS: usize = 100;
/// A slow store may take this many times the requested time for [`MIN_ROUNDS`] rounds.
const MAX_OVERTIME: u32 = 4;

/// An operation that is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timed {
    Read,
    ReadUnchanged,
    /// Without heartbeats: whether anything has changed.
    ReadQuiet,
    ReadRow,
    Commit,
    Heartbeat,
    /// The store's own cheapest write.
    OwnWrite,
    /// The store's own cheapest read.
    OwnRead,
}

impl Timed {
    /// The operations of a table, in the order they are shown.
    pub const OPERATIONS: [Self; 6] = [
        Self::Read,
        Self::ReadUnchanged,
        Self::ReadQuiet,
        Self::ReadRow,
        Self::Commit,
        Self::Heartbeat,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::ReadUnchanged => "read, unchanged",
            Self::ReadQuiet => "read, no heartbeats",
            Self::ReadRow => "read_row",
            Self::Commit => "commit",
            Self::Heartbeat => "heartbeat",
            Self::OwnWrite => "the store's own write",
            Self::OwnRead => "the store's own read",
        }
    }

    /// The baseline it is compared with.
    pub const fn own(self) -> Self {
        match self {
            Self::Commit | Self::Heartbeat | Self::OwnWrite => Self::OwnWrite,
            _ => Self::OwnRead,
        }
    }
}

/// Sorted times of one operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times(Vec<Duration>);

impl Times {
    pub fn from(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The time that this percentage of the rounds did not exceed; none without a round.
    pub fn percentile(&self, percent: usize) -> Option<Duration> {
        let rank = (self.0.len() * percent).div_ceil(100);
        self.0.get(rank.saturating_sub(1)).copied()
    }
}

/// The figures of one size of table.
pub(crate) struct Operations {
    pub rows: usize,
    times: [Times; 8],
    /// Rounds that were not counted because the store was busy or an outcome was unknown.
    pub troubled: usize,
}

impl Operations {
    pub const fn of(&self, what: Timed) -> &Times {
        &self.times[what as usize]
    }

    /// The median divided by that of the store's own cheapest operation; none without a baseline.
    pub fn ratio(&self, what: Timed) -> Option<f64> {
        let (table, own) = (
            self.of(what).percentile(50)?,
            self.of(what.own()).percentile(50)?,
        );
        (!own.is_zero()).then(|| table.as_secs_f64() / own.as_secs_f64())
    }
}

/// Times every operation once per round, in a random order, for about `time`.
pub(crate) async fn measure(
    table: &dyn MembershipTable,
    baseline: Option<Arc<dyn Baseline>>,
    rows: usize,
    time: Duration,
    progress: &Progress,
) -> Result<Operations, Failure> {
    let mut order: Vec<Timed> = Timed::OPERATIONS.into();
    if baseline.is_some() {
        order.extend([Timed::OwnWrite, Timed::OwnRead]);
    }
    let mut at = Client::find(table, baseline).await?;
    let mut times: [Vec<Duration>; 8] = Default::default();
    let (mut counted, mut troubled, began) = (0, 0, Instant::now());
    for round in 0.. {
        if began.elapsed() >= time * MAX_OVERTIME
            || (began.elapsed() >= time && counted >= MIN_ROUNDS)
        {
            break;
        }
        progress.update(began, time);
        shuffle(&mut order);
        let mut this = Vec::with_capacity(order.len());
        let mut trouble = None;
        for what in &order {
            match at.time(*what).await? {
                Ok(took) => this.push((*what, took)),
                Err(error) => trouble = Some(error),
            }
        }
        if let Some(error) = trouble {
            troubled += 1;
            if troubled > MIN_ROUNDS && troubled > counted {
                return Err(error.into());
            }
            at.refresh().await?;
        } else if round >= WARM_UP {
            counted += 1;
            for (what, took) in this {
                times[what as usize].push(took);
            }
        }
    }
    if counted == 0 {
        return Err(Failure::new(
            Exit::Unreachable,
            format!(
                "no round of operations ended within {} s",
                (time * MAX_OVERTIME).as_secs()
            ),
        ));
    }
    Ok(Operations {
        rows,
        times: times.map(Times::from),
        troubled,
    })
}

/// A uniformly random order, so that no operation always follows the same one.
fn shuffle(order: &mut [Timed]) {
    let mut chance = clock::random();
    for last in (1..order.len()).rev() {
        let among = last as u128 + 1;
        order.swap(last, usize::try_from(chance % among).unwrap_or(0));
        chance /= among;
    }
}

/// The client that is measured.
struct Client<'a> {
    table: &'a dyn MembershipTable,
    baseline: Option<Arc<dyn Baseline>>,
    now: Snapshot,
    silos: Vec<SiloAddress>,
    counter: u64,
}

impl<'a> Client<'a> {
    async fn find(
        table: &'a dyn MembershipTable,
        baseline: Option<Arc<dyn Baseline>>,
    ) -> Result<Self, Failure> {
        let now = table.read_all().await?.0;
        let silos = now.rows.entries().map(|e| e.address).collect();
        Ok(Self {
            table,
            baseline,
            now,
            silos,
            counter: 1,
        })
    }

    async fn refresh(&mut self) -> Result<(), Failure> {
        self.now = self.table.read_all().await?.0;
        Ok(())
    }

    /// The silos in turn.
    fn next(&mut self) -> Result<SiloAddress, Failure> {
        self.counter += 1;
        let index = usize::try_from(self.counter).unwrap_or(0) % self.silos.len().max(1);
        self.silos.get(index).copied().ok_or_else(disturbed)
    }

    /// Times one operation; the inner error is a temporary one.
    async fn time(&mut self, what: Timed) -> Result<Result<Duration, TableError>, Failure> {
        let done = match what {
            Timed::Read => self.read(ReadRequest::all()).await,
            Timed::ReadUnchanged | Timed::ReadQuiet => {
                let request = ReadRequest::all().with_known(self.now.token.clone());
                let heartbeats = what == Timed::ReadUnchanged;
                self.read(request.with_heartbeats(heartbeats)).await
            }
            Timed::ReadRow => {
                let silo = self.next()?;
                let began = Instant::now();
                self.table
                    .read_row(&silo, Some(&self.now.token))
                    .await
                    .map(|_| began.elapsed())
            }
            Timed::Commit => return self.commit().await,
            Timed::Heartbeat => {
                let silo = self.next()?;
                // Never lower than the stored one, which the table need not overwrite.
                let write: HeartbeatWrite = heartbeat(silo, self.counter);
                let began = Instant::now();
                self.table
                    .update_i_am_alive(&write)
                    .await
                    .map(|()| began.elapsed())
            }
            Timed::OwnWrite | Timed::OwnRead => {
                let Some(baseline) = &self.baseline else {
                    return Err(disturbed());
                };
                let began = Instant::now();
                if what == Timed::OwnWrite {
                    baseline.write().await
                } else {
                    baseline.read().await
                }
                .map(|()| began.elapsed())
            }
        };
        unless_permanent(done)
    }

    async fn read(&self, request: ReadRequest) -> Result<Duration, TableError> {
        let began = Instant::now();
        let answer = self.table.read(&request).await?;
        let took = began.elapsed();
        // The suite checks answers; here they only must not be optimised away.
        drop::<ReadAnswer>(std::hint::black_box(answer));
        Ok(took)
    }

    async fn commit(&mut self) -> Result<Result<Duration, TableError>, Failure> {
        let silo = self.next()?;
        let request = change(&self.now, &silo)?;
        let began = Instant::now();
        match self.table.commit(&request).await {
            Ok(CommitOutcome::Committed(token)) => {
                let took = began.elapsed();
                self.now = request.apply_to(&self.now, token);
                Ok(Ok(took))
            }
            Ok(_) => Err(disturbed()),
            Err(error) => unless_permanent(Err(error)),
        }
    }
}

/// A permanent error ends the run; a temporary one spoils a round.
fn unless_permanent(
    done: Result<Duration, TableError>,
) -> Result<Result<Duration, TableError>, Failure> {
    match done {
        Err(error) if error.next_step() == NextStep::GiveUp => Err(error.into()),
        done => Ok(done),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles() {
        let ms = |n| Duration::from_millis(n);
        let times = Times::from((1..=100).rev().map(ms).collect());
        assert_eq!(
            (
                times.percentile(50),
                times.percentile(99),
                times.percentile(100)
            ),
            (Some(ms(50)), Some(ms(99)), Some(ms(100)))
        );
        assert_eq!(Times::from(vec![ms(7)]).percentile(50), Some(ms(7)));
        assert_eq!(Times::default().percentile(50), None);
    }

    #[test]
    fn every_operation_comes_first_at_times() {
        let mut firsts = std::collections::BTreeSet::new();
        let mut order = Timed::OPERATIONS;
        for _ in 0..500 {
            shuffle(&mut order);
            firsts.insert(order[0]);
        }
        assert_eq!(firsts.len(), 6);
        order.sort_unstable();
        assert_eq!(order, Timed::OPERATIONS);
    }
}
