//! Kills the leading server, again and again, while the clients of a history go on. T2, T13.
//!
//! This file only stages the kills. The check of the history compares the clients' answers with the
//! contract.

use std::fmt;
use std::time::{Duration, Instant};

use membership_core::ClusterName;

use super::shared::Common;
use crate::Stop;
use crate::case::Cx;

/// Every client must have been served again within this many timeouts of one operation: an
/// election, the recovery of a log, and the clients' pause before they connect again follow each
/// other.
const PATIENCE: u32 = 4;

/// The figures of several kills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outages {
    /// The number of kills.
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
            "{} kills, at most {down:.2} s until the server was back, then {served:.2} s until every client was served",
            self.kills
        )
    }
}

/// Spreads the kills evenly over the commits of a history. Ends early if clients end, or if none of
/// them can go on.
pub(super) async fn in_a_row(
    cx: &Cx,
    common: &Common,
    cluster: &ClusterName,
    kills: usize,
    ended: impl Fn() -> bool,
) -> Result<Outages, Stop> {
    let mut random = cx.random(300);
    let mut outages = Outages::default();
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
                    "no client has committed for {patience:?} after kill {}",
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
        cx.backend().kill_leader(cluster).await?;
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
                    "kill {kill}: client {client} has not been served within {patience:?}; its last error: {last}"
                )));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let served = since.elapsed();
        outages = Outages {
            kills: kill,
            down: outages.down.max(down),
            served: outages.served.max(served),
        };
        cx.progress(format!(
            "kill {kill} of {kills} after {killed_at} commits: the server was back after {:.2} s, every client served {:.2} s later",
            down.as_secs_f64(),
            served.as_secs_f64()
        ));
    }
    Ok(outages)
}
