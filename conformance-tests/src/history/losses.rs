//! Clients of a store that may lose acknowledged commits when another server takes over: whoever
//! knows of a lost one is told `TableRolledBack`, and nobody else is. T16.
//!
//! Each client rewrites its own row, so a read that shows less than it has acknowledged is a loss
//! that nobody told. A client that is told reads again over a new connection, as core does, and
//! compares what it knew with what it finds.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use membership_core::{
    CommitOutcome, MembershipEntry, NextStep, ReadAnswer, ReadRequest, Snapshot, TableError,
    TableErrorKind, check_snapshot, check_token,
};
use tokio::task::JoinSet;

use super::kills::Failing;
use crate::Stop;
use crate::case::{Cx, Table, Verdict, commit, must, read, unknown_answer};

/// A client waits so long between two commits: the figures are about failovers, not about load.
const PAUSE: Duration = Duration::from_millis(3);
/// Every client must be served again within this many timeouts of one operation.
const PATIENCE: u32 = 4;

/// What the clients were told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    failovers: usize,
    commits: u64,
    /// Clients that were told, once for each loss.
    told: u64,
    /// Acknowledged commits that are lost, each told to its client.
    lost: u64,
    /// Answers that a second read over a new connection took back.
    taken_back: u64,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} failovers, {} commits, {} of them lost and told; clients told {} times, {} answers taken back by a second read",
            self.failovers, self.commits, self.lost, self.told, self.taken_back
        )
    }
}

/// Runs clients on a table while its leader is frozen again and again.
pub(crate) async fn losses(
    cx: &Cx,
    table: &Table,
    clients: usize,
    freezes: usize,
) -> Result<Told, Stop> {
    let rows: Vec<MembershipEntry> = (0..clients).map(|_| cx.entry()).collect();
    for row in &rows {
        let token = read(table).await?.0.token;
        commit(table, &cx.insert(&token, [row.clone()])).await?;
    }
    let over = Arc::new(AtomicBool::new(false));
    let served: Arc<Vec<AtomicU64>> = Arc::new(rows.iter().map(|_| AtomicU64::new(0)).collect());
    let mut tasks = JoinSet::new();
    for (n, row) in rows.into_iter().enumerate() {
        let client = Client {
            cx: cx.clone(),
            table: cx.another(table).await?,
            n,
            row,
            known: None,
            written: 0,
            acknowledged: Vec::new(),
            served: served.clone(),
            told: Told::default(),
        };
        tasks.spawn(client.run(over.clone()));
    }
    let all_serve = async |freeze: usize, tasks: &mut JoinSet<Result<Told, Stop>>| {
        let before: Vec<u64> = served.iter().map(|n| n.load(Ordering::SeqCst)).collect();
        let deadline = Instant::now() + cx.effort().operation_timeout * PATIENCE;
        let waits = || {
            let mut both = served.iter().zip(&before);
            both.position(|(now, before)| now.load(Ordering::SeqCst) < before + 5)
        };
        while let Some(client) = waits() {
            if let Some(ended) = tasks.try_join_next() {
                ended??;
            }
            must!(
                Instant::now() < deadline,
                "client {client} has not been served after freeze {freeze}"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    };
    all_serve(0, &mut tasks).await?;
    for freeze in 1..=freezes {
        let began = Instant::now();
        Failing::Freeze.once(cx, table.cluster()).await?;
        let back = began.elapsed().as_secs_f64();
        all_serve(freeze, &mut tasks).await?;
        cx.progress(format!(
            "freeze {freeze} of {freezes}: the former leader takes part again after {back:.2} s, every client was served after {:.2} s",
            began.elapsed().as_secs_f64()
        ));
    }
    over.store(true, Ordering::SeqCst);
    let mut told = Told {
        failovers: freezes,
        ..Told::default()
    };
    while let Some(ended) = tasks.join_next().await {
        let these = ended??;
        told.commits += these.commits;
        told.told += these.told;
        told.lost += these.lost;
        told.taken_back += these.taken_back;
    }
    Ok(told)
}

struct Client {
    cx: Cx,
    table: Table,
    n: usize,
    row: MembershipEntry,
    /// What the client has read or committed last.
    known: Option<Snapshot>,
    /// The mark that it wrote last.
    written: u64,
    /// The marks that were acknowledged, and not told as lost.
    acknowledged: Vec<u64>,
    served: Arc<Vec<AtomicU64>>,
    told: Told,
}

impl Client {
    async fn run(mut self, over: Arc<AtomicBool>) -> Result<Told, Stop> {
        while !over.load(Ordering::SeqCst) {
            self.turn().await?;
            tokio::time::sleep(PAUSE).await;
        }
        // Nothing that was acknowledged is missing at the end without having been told.
        let deadline = Instant::now() + self.cx.effort().operation_timeout * PATIENCE;
        while !self.look(false).await? {
            must!(
                Instant::now() < deadline,
                "client {}: the table cannot be read at the end",
                self.n
            );
        }
        Ok(self.told)
    }

    async fn turn(&mut self) -> Verdict {
        if !self.look(false).await? {
            tokio::time::sleep(Duration::from_millis(20)).await;
            return Ok(());
        }
        let Some(known) = self.known.clone() else {
            return Ok(());
        };
        let mut row = self.row.clone();
        self.written += 1;
        row.info.role = self.written.to_string();
        let request = self.cx.update(&known.token, [row]);
        match self
            .cx
            .in_time("a commit", self.table.commit(&request))
            .await?
        {
            Ok(CommitOutcome::Committed(token)) => {
                self.known = Some(request.apply_to(&known, token));
                self.acknowledged.push(self.written);
                self.told.commits += 1;
                self.serve();
            }
            Ok(CommitOutcome::Conflict(_)) => self.serve(),
            Ok(other) => return Err(unknown_answer(&other)),
            Err(e) if is_told(&e) => drop(self.look(true).await?),
            Err(e) => self.temporary(&e)?,
        }
        Ok(())
    }

    fn serve(&self) {
        if let Some(served) = self.served.get(self.n) {
            served.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn temporary(&self, e: &TableError) -> Verdict {
        must!(
            e.next_step() != NextStep::GiveUp,
            "client {}: an error after which no silo tries again: {:?}: {e}",
            self.n,
            e.kind()
        );
        Ok(())
    }

    /// Reads what is there, and states what is known. An answer that the table was rolled back is
    /// in doubt until a read over a new connection has repeated it. Returns whether there was an
    /// answer.
    async fn look(&mut self, anew: bool) -> Result<bool, Stop> {
        let known = self.known.as_ref().map(|known| known.token.clone());
        let request = ReadRequest::all()
            .with_heartbeats(false)
            .with_known(known)
            .with_new_connection(anew);
        match self.cx.in_time("a read", self.table.read(&request)).await? {
            Ok(ReadAnswer::Snapshot { snapshot, .. }) if self.is_another(&snapshot)? => {
                match anew {
                    true => self.lost().await,
                    false => Box::pin(self.look(true)).await,
                }
            }
            Ok(ReadAnswer::Snapshot { snapshot, .. }) => {
                self.told.taken_back += u64::from(anew);
                self.shown(snapshot)?;
                Ok(true)
            }
            Ok(ReadAnswer::Unchanged { .. }) => {
                self.told.taken_back += u64::from(anew);
                Ok(true)
            }
            Ok(other) => Err(unknown_answer(&other)),
            Err(e) if is_told(&e) && anew => self.lost().await,
            Err(e) if is_told(&e) => Box::pin(self.look(true)).await,
            Err(e) => self.temporary(&e).map(|()| false),
        }
    }

    /// Whether the rows show that the table was rolled back, as core sees it too: a token is
    /// compared with the last commits alone. What those show, the provider has to tell.
    fn is_another(&self, now: &Snapshot) -> Result<bool, Stop> {
        let Some(known) = &self.known else {
            return Ok(false);
        };
        must!(
            check_token(&known.token, &now.version_row).is_ok(),
            "client {}: it stated {:?}, was shown {:?}, and nobody told",
            self.n,
            known.token,
            now.token
        );
        Ok(check_snapshot(known, now).is_err())
    }

    /// The mark in the own row.
    fn mark(&self, now: &Snapshot) -> u64 {
        let row = now.rows.get(&self.row.address);
        row.and_then(|row| row.info.role.parse().ok()).unwrap_or(0)
    }

    /// A read that is no error shows what this client has acknowledged, and a successor of what it
    /// knew.
    fn shown(&mut self, now: Snapshot) -> Verdict {
        let mark = self.mark(&now);
        let last = self.acknowledged.last().copied().unwrap_or(0);
        must!(
            mark >= last,
            "client {}: its commit {last} was acknowledged, version {} shows {mark}, and nobody told",
            self.n,
            now.version()
        );
        self.known = Some(now);
        Ok(())
    }

    /// The client was told twice. What it knew must be gone.
    async fn lost(&mut self) -> Result<bool, Stop> {
        let request = ReadRequest::all()
            .with_heartbeats(false)
            .with_new_connection(true);
        let deadline = Instant::now() + self.cx.effort().operation_timeout * PATIENCE;
        let now = loop {
            match self.cx.in_time("a read", self.table.read(&request)).await? {
                Ok(ReadAnswer::Snapshot { snapshot, .. }) => break snapshot,
                Ok(other) => return Err(unknown_answer(&other)),
                Err(e) => self.temporary(&e)?,
            }
            must!(
                Instant::now() < deadline,
                "client {}: the table cannot be read after it was rolled back",
                self.n
            );
        };
        if let Some(known) = self.known.take() {
            must!(
                check_snapshot(&known, &now).is_err(),
                "client {}: it was told that the table was rolled back, and version {} is a successor of version {}",
                self.n,
                now.version(),
                known.version()
            );
        }
        let mark = self.mark(&now);
        self.told.told += 1;
        let kept = self.acknowledged.partition_point(|one| *one <= mark);
        self.told.lost += self.acknowledged.split_off(kept).len() as u64;
        self.known = Some(now);
        Ok(true)
    }
}

fn is_told(e: &TableError) -> bool {
    matches!(
        e.kind(),
        TableErrorKind::TableRolledBack | TableErrorKind::TableReplaced
    )
}
