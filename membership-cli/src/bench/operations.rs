//! One client: how long each operation takes, in turns with the store's own cheapest write and read.

use std::sync::Arc;
use std::time::{Duration, Instant};

use membership_core::{
    CommitOutcome, HeartbeatWrite, MembershipTable, NextStep, ReadAnswer, ReadRequest, SiloAddress,
    Snapshot, TableError, TableExt, Yardstick,
};

use super::grounds::{beat, change, disturbed};
use super::progress::Progress;
use crate::clock;
use crate::exit::{Exit, Failure};

/// The first rounds prepare statements and load scripts; they are not counted.
const WARM_UP: usize = 5;
/// With fewer rounds the 99th percentile would be the slowest round.
const LEAST: usize = 100;
/// So many times the wanted time is given to a store that needs it for [`LEAST`] rounds.
const PATIENCE: u32 = 4;

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timed {
    Read,
    ReadUnchanged,
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
    pub const OPERATIONS: [Self; 5] = [
        Self::Read,
        Self::ReadUnchanged,
        Self::ReadRow,
        Self::Commit,
        Self::Heartbeat,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::ReadUnchanged => "read, unchanged",
            Self::ReadRow => "read_row",
            Self::Commit => "commit",
            Self::Heartbeat => "heartbeat",
            Self::OwnWrite => "the store's own write",
            Self::OwnRead => "the store's own read",
        }
    }

    /// What it is held against.
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

    /// The time that so many percent of the rounds did not exceed; none when there was no round.
    pub fn percentile(&self, percent: usize) -> Option<Duration> {
        let rank = (self.0.len() * percent).div_ceil(100);
        self.0.get(rank.saturating_sub(1)).copied()
    }
}

/// The figures of one size of table.
pub(crate) struct Operations {
    pub rows: usize,
    times: [Times; 7],
    /// Rounds that were not counted because the store was busy or an outcome was unknown.
    pub troubled: usize,
}

impl Operations {
    pub const fn of(&self, what: Timed) -> &Times {
        &self.times[what as usize]
    }

    /// How many times the store's own cheapest one takes, at the median; none without a yardstick.
    pub fn ratio(&self, what: Timed) -> Option<f64> {
        let (table, own) = (
            self.of(what).percentile(50)?,
            self.of(what.own()).percentile(50)?,
        );
        (!own.is_zero()).then(|| table.as_secs_f64() / own.as_secs_f64())
    }
}

/// Rounds of everything, each in another order, for about so long.
pub(crate) async fn measure(
    table: &dyn MembershipTable,
    yardstick: Option<Arc<dyn Yardstick>>,
    rows: usize,
    time: Duration,
    progress: &Progress,
) -> Result<Operations, Failure> {
    let mut order: Vec<Timed> = Timed::OPERATIONS.into();
    if yardstick.is_some() {
        order.extend([Timed::OwnWrite, Timed::OwnRead]);
    }
    let mut at = Place::find(table, yardstick).await?;
    let mut times: [Vec<Duration>; 7] = Default::default();
    let (mut counted, mut troubled, began) = (0, 0, Instant::now());
    for round in 0.. {
        if began.elapsed() >= time * PATIENCE || (began.elapsed() >= time && counted >= LEAST) {
            break;
        }
        progress.within(began, time);
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
            if troubled > LEAST && troubled > counted {
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
                "not one round of operations ended within {} s",
                (time * PATIENCE).as_secs()
            ),
        ));
    }
    Ok(Operations {
        rows,
        times: times.map(Times::from),
        troubled,
    })
}

/// Every order is as likely as any other, so that no operation always follows the same one.
fn shuffle(order: &mut [Timed]) {
    let mut chance = clock::random();
    for last in (1..order.len()).rev() {
        let among = last as u128 + 1;
        order.swap(last, usize::try_from(chance % among).unwrap_or(0));
        chance /= among;
    }
}

/// A client between two operations.
struct Place<'a> {
    table: &'a dyn MembershipTable,
    yardstick: Option<Arc<dyn Yardstick>>,
    now: Snapshot,
    silos: Vec<SiloAddress>,
    counter: u64,
}

impl<'a> Place<'a> {
    async fn find(
        table: &'a dyn MembershipTable,
        yardstick: Option<Arc<dyn Yardstick>>,
    ) -> Result<Self, Failure> {
        let now = table.read_all().await?.0;
        let silos = now.rows.entries().map(|e| e.address).collect();
        Ok(Self {
            table,
            yardstick,
            now,
            silos,
            counter: 1,
        })
    }

    async fn refresh(&mut self) -> Result<(), Failure> {
        self.now = self.table.read_all().await?.0;
        Ok(())
    }

    /// One after the other, so that every row has its turn.
    fn next(&mut self) -> Result<SiloAddress, Failure> {
        self.counter += 1;
        let index = usize::try_from(self.counter).unwrap_or(0) % self.silos.len().max(1);
        self.silos.get(index).copied().ok_or_else(disturbed)
    }

    /// Times one operation; the inner error is one that passes.
    async fn time(&mut self, what: Timed) -> Result<Result<Duration, TableError>, Failure> {
        let done = match what {
            Timed::Read => self.read(ReadRequest::all()).await,
            Timed::ReadUnchanged => {
                let known = Some(self.now.token.clone());
                self.read(ReadRequest {
                    known,
                    heartbeats: true,
                    barrier: false,
                })
                .await
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
                // Never lower than one that is there: the table would be right not to write it.
                let write: HeartbeatWrite = beat(silo, self.counter);
                let began = Instant::now();
                self.table
                    .update_i_am_alive(&write)
                    .await
                    .map(|()| began.elapsed())
            }
            Timed::OwnWrite | Timed::OwnRead => {
                let Some(yardstick) = &self.yardstick else {
                    return Err(disturbed());
                };
                let began = Instant::now();
                if what == Timed::OwnWrite {
                    yardstick.write().await
                } else {
                    yardstick.read().await
                }
                .map(|()| began.elapsed())
            }
        };
        passing(done)
    }

    async fn read(&self, request: ReadRequest) -> Result<Duration, TableError> {
        let began = Instant::now();
        let answer = self.table.read(&request).await?;
        let took = began.elapsed();
        // Whether it is what was asked for is for the suite to prove; here it only must not be optimised away.
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
            Ok(CommitOutcome::Conflict(_)) => Err(disturbed()),
            Err(error) => passing(Err(error)),
        }
    }
}

fn passing(done: Result<Duration, TableError>) -> Result<Result<Duration, TableError>, Failure> {
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
    fn every_order_comes() {
        let mut firsts = std::collections::BTreeSet::new();
        let mut order = Timed::OPERATIONS;
        for _ in 0..500 {
            shuffle(&mut order);
            firsts.insert(order[0]);
        }
        assert_eq!(firsts.len(), 5);
        order.sort_unstable();
        assert_eq!(order, Timed::OPERATIONS);
    }
}
