//! Kills the leading server, or freezes it until another one leads, again and again, while the
//! clients of a history go on. T2, T13.
//!
//! This file only stages the kills. The check of the history compares the clients' answers with the
//! contract.

use std::fmt;
use std::time::{Duration, Instant};

use membership_core::ClusterName;

use super::run::Plan;
use super::shared::Common;
use crate::Stop;
use crate::case::Cx;

/// Every client must have been served again within this many timeouts of one operation: an
/// election, the recovery of a log, and the clients' pause before they connect again follow each
/// other.
const PATIENCE: u32 = 4;

/// How the leading server fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failing {
    /// It is killed, and started again on its data.
    Kill,
    /// It is frozen until another one leads, and thawed while clients are still connected to it.
    Freeze,
}

impl Failing {
    /// Lets it fail; returns when all servers serve again.
    pub async fn once(self, cx: &Cx, cluster: &ClusterName) -> Result<(), Stop> {
        let backend = cx.backend();
        match self {
            Self::Kill => backend.kill_leader(cluster).await,
            Self::Freeze => {
                let deposed = backend.depose(cluster).await;
                // The successor serves for a while before the former leader answers what waits.
                if deposed.is_ok() {
                    tokio::time::sleep(FORMER).await;
                }
                backend.thaw(cluster).await?;
                deposed?;
                tokio::time::sleep(FORMER).await;
                backend.rejoined(cluster).await
            }
        }
    }

    const fn noun(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Freeze => "freeze",
        }
    }
}

/// For how long clients work with a successor before, and after, the former leader continues.
const FORMER: Duration = Duration::from_millis(300);

/// The figures of several kills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outages {
    /// How the server failed.
    pub how: Failing,
    /// How often it failed.
    pub kills: usize,
    /// The longest time from a kill until [`kill_leader`](crate::Backend::kill_leader) returned.
    pub down: Duration,
    /// The longest time from then until every client was served.
    pub served: Duration,
}

impl fmt::Display for Outages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (down, served) = (self.down.as_secs_f64(), self.served.as_secs_f64());
        write!(
            f,
            "{} {}s, at most {down:.2} s until the server was back, then {served:.2} s until every client was served",
            self.kills,
            self.how.noun()
        )
    }
}

/// Spreads the kills evenly over the commits of a history. Ends early if clients end, or if none of
/// them can go on.
pub(super) async fn in_a_row(
    cx: &Cx,
    common: &Common,
    cluster: &ClusterName,
    plan: &Plan,
    ended: impl Fn() -> bool,
) -> Result<Outages, Stop> {
    let mut random = cx.random(300);
    let (kills, how) = (plan.kills, plan.how);
    let noun = how.noun();
    let mut outages = Outages {
        how,
        kills: 0,
        down: Duration::ZERO,
        served: Duration::ZERO,
    };
    let patience = cx.effort().operation_timeout * PATIENCE;
    let ended = || ended() || common.is_hopeless();
    let share = |kill: usize| common.target() * kill as u64 / (kills as u64 + 1);
    for kill in 1..=kills {
        let (before, due) = (common.commits(), share(kill));
        let mut moved = (before, Instant::now());
        while common.commits() < due && !ended() {
            if common.commits() > moved.0 {
                moved = (common.commits(), Instant::now());
            }
            if moved.1.elapsed() > patience {
                return Err(Stop::failed(format!(
                    "no client has committed for {patience:?} after {noun} {}",
                    kill - 1
                )));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // A random delay, so that the kill hits any moment of a commit.
        tokio::time::sleep(Duration::from_micros(random.next() % 3_000)).await;
        if ended() {
            return Ok(outages);
        }
        let killed_at = common.commits();
        let began = Instant::now();
        how.once(cx, cluster).await?;
        let down = began.elapsed();
        let (marks, since) = (common.served(), Instant::now());
        let waiting = || {
            common
                .served()
                .iter()
                .zip(&marks)
                .position(|(now, mark)| now == mark)
        };
        while let Some(client) = waiting().filter(|_| !ended()) {
            if since.elapsed() > patience {
                let last = common.complaint(client);
                return Err(Stop::failed(format!(
                    "{noun} {kill}: client {client} has not been served within {patience:?}; its last error: {last}"
                )));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let served = since.elapsed();
        outages = Outages {
            how,
            kills: kill,
            down: outages.down.max(down),
            served: outages.served.max(served),
        };
        cx.progress(format!(
            "{noun} {kill} of {kills} after {killed_at} commits: the server was back after {:.2} s, every client served {:.2} s later",
            down.as_secs_f64(),
            served.as_secs_f64()
        ));
    }
    Ok(outages)
}
