//! Thousands of random operations, one after the other. After each, the table is compared with the
//! in-memory table.

use std::collections::BTreeSet;

use membership_core::{
    CommitOutcome, CommitRequest, Heartbeat, HeartbeatWrite, MAX_CLUSTER_CELL_BYTES,
    MembershipEntry, MemoryTable, ReadAnswer, ReadRequest, SiloAddress, SiloStatus, Snapshot,
    TableError, TableErrorKind, VersionToken, WallTime,
};

use crate::Stop;
use crate::case::{Cx, Random, Table, Verdict, must, send, shown, unknown_answer};

/// How many old tokens and commits are kept to be used again.
const MEMORY: usize = 40;

/// A table, its model, and what is known of both.
struct Pair {
    cx: Cx,
    clients: Vec<Table>,
    model: MemoryTable,
    random: Random,
    tokens: Vec<VersionToken>,
    sent: Vec<CommitRequest>,
    present: Vec<MembershipEntry>,
    gone: Vec<SiloAddress>,
    /// Silos that write heartbeats without a row. An orphan may exist, so these silos never get a
    /// row.
    orphans: BTreeSet<SiloAddress>,
}

/// Runs as many operations as the effort says.
pub(crate) async fn run(cx: Cx) -> Verdict {
    let table = cx.client(&cx.cluster()?).await?;
    let clients = vec![
        table.clone(),
        cx.another(&table).await?,
        cx.another(&table).await?,
    ];
    let model = MemoryTable::new(table.cluster().clone()).with_limits(table.limits());
    let mut pair = Pair {
        random: cx.random(7),
        cx: cx.clone(),
        clients,
        model,
        tokens: Vec::new(),
        sent: Vec::new(),
        present: Vec::new(),
        gone: Vec::new(),
        orphans: BTreeSet::new(),
    };
    for n in 0..cx.effort().model_operations {
        let (what, verdict) = pair.step(n).await;
        if let Err(Stop::Failed(why)) = verdict {
            return Err(Stop::failed(format!("operation {n}, {what}: {why}")));
        }
        verdict?;
        let done = n + 1;
        if done % 10_000 == 0 {
            cx.progress(format!(
                "{done} of {} operations agree with the model",
                cx.effort().model_operations
            ));
        }
    }
    Ok(())
}

/// Fails unless both answers are the same error, or both are no error.
fn agree<A, B>(
    table: Result<A, TableError>,
    model: Result<B, TableError>,
) -> Result<Option<(A, B)>, Stop> {
    match (table, model) {
        (Ok(a), Ok(b)) => Ok(Some((a, b))),
        (Err(a), Err(b)) if a.kind() == b.kind() => Ok(None),
        // A commit on an absent table may be refused with either kind.
        (Err(a), Err(b))
            if [a.kind(), b.kind()]
                == [
                    TableErrorKind::NotInitialized,
                    TableErrorKind::TableReplaced,
                ] =>
        {
            Ok(None)
        }
        (Err(a), Err(b)) => Err(Stop::failed(format!(
            "the error is {:?} instead of {:?}: {a}",
            a.kind(),
            b.kind()
        ))),
        (Err(a), Ok(_)) => Err(Stop::failed(format!("unexpected error: {a}"))),
        (Ok(_), Err(b)) => Err(Stop::failed(format!(
            "expected an error of kind {:?}",
            b.kind()
        ))),
    }
}

fn same_snapshot(a: &Snapshot, b: &Snapshot) -> Verdict {
    must!(
        a.version_row == b.version_row,
        "the version row is {:?} instead of {:?}",
        a.version_row,
        b.version_row
    );
    must!(
        a.token.same_commit(&b.token),
        "the token is {:?} instead of {:?}",
        a.token,
        b.token
    );
    must!(
        a.rows == b.rows,
        "the rows are {:?} instead of {:?}",
        a.rows,
        b.rows
    );
    Ok(())
}

impl Pair {
    async fn step(&mut self, n: usize) -> (&'static str, Verdict) {
        let which = if n == 0 { 0 } else { self.random.below(1000) };
        let client = self.clients[self.random.below(self.clients.len())].clone();
        match which {
            0..=9 => ("initialize", self.initialize(&client).await),
            10..=13 => ("delete", self.delete(&client).await),
            14..=249 => ("read", self.read(&client).await),
            250..=349 => ("read_row", self.read_row(&client).await),
            350..=449 => ("heartbeat", self.beat(&client).await),
            450..=469 => ("cluster cell", self.cell(&client).await),
            470..=549 => ("commit sent again", self.again(&client).await),
            _ => ("commit", self.commit(&client).await),
        }
    }

    fn any_token(&mut self) -> Option<VersionToken> {
        match self.random.below(10) {
            0..=5 => self.tokens.last().cloned(),
            _ => self
                .tokens
                .get(self.random.below(self.tokens.len()))
                .cloned(),
        }
    }

    /// A silo that has a row, had one, or never had one.
    fn any_silo(&mut self) -> SiloAddress {
        let present = self
            .present
            .get(self.random.below(self.present.len()))
            .map(|e| e.address);
        let gone = self.gone.get(self.random.below(self.gone.len())).copied();
        match self.random.below(10) {
            0 => gone.unwrap_or_else(|| self.cx.entry().address),
            1 => self.cx.entry().address,
            _ => present.unwrap_or_else(|| self.cx.entry().address),
        }
    }

    async fn initialize(&mut self, client: &Table) -> Verdict {
        let request = self.cx.initialize_request();
        agree(
            client.initialize(&request).await,
            self.model.initialize_sync(&request),
        )?;
        self.refresh()
    }

    async fn delete(&mut self, client: &Table) -> Verdict {
        agree(client.delete().await, self.model.delete_sync())?;
        self.orphans
            .extend(self.present.drain(..).map(|e| e.address));
        Ok(())
    }

    async fn read(&mut self, client: &Table) -> Verdict {
        let known = if self.random.percent(70) {
            self.any_token()
        } else {
            None
        };
        let request = ReadRequest::all()
            .with_known(known)
            .with_heartbeats(self.random.percent(60))
            .with_barrier(self.random.percent(50));
        // Only a read with a barrier is as recent as the model on every store.
        let linearizable = self.cx.must_be_linearizable(&**client);
        let barrier = request.barrier || !linearizable;
        let request = request.with_barrier(barrier);
        let Some((a, b)) = agree(client.read(&request).await, self.model.read_sync(&request))?
        else {
            return Ok(());
        };
        must!(
            a.heartbeats().map(shown) == b.heartbeats().map(shown),
            "the heartbeats are {:?} instead of {:?}",
            a.heartbeats(),
            b.heartbeats()
        );
        match (&a, &b) {
            (
                ReadAnswer::Snapshot { snapshot: a, .. },
                ReadAnswer::Snapshot { snapshot: b, .. },
            ) => same_snapshot(a, b),
            // A store that cannot find out cheaply may read again.
            (ReadAnswer::Snapshot { snapshot, .. }, ReadAnswer::Unchanged { .. }) => {
                must!(
                    request
                        .known
                        .as_ref()
                        .is_some_and(|k| k.same_commit(&snapshot.token)),
                    "expected unchanged, got {snapshot:?}"
                );
                Ok(())
            }
            (ReadAnswer::Unchanged { .. }, ReadAnswer::Snapshot { snapshot, .. }) => {
                Err(Stop::failed(format!(
                    "unchanged since {:?}, though the table is at {:?}",
                    request.known, snapshot.token
                )))
            }
            (ReadAnswer::Unchanged { .. }, ReadAnswer::Unchanged { .. }) => Ok(()),
            (other, _) => Err(unknown_answer(other)),
        }
    }

    async fn read_row(&mut self, client: &Table) -> Verdict {
        let silo = self.any_silo();
        let known = if self.random.percent(50) {
            self.any_token()
        } else {
            None
        };
        // A read of one row has no barrier.
        if !self.cx.must_be_linearizable(&**client) {
            return Ok(());
        }
        let answers = (
            client.read_row(&silo, known.as_ref()).await,
            self.model.read_row_sync(&silo, known.as_ref()),
        );
        let Some((a, b)) = agree(answers.0, answers.1)? else {
            return Ok(());
        };
        must!(
            a.token.same_commit(&b.token) && a.row == b.row && a.heartbeat == b.heartbeat,
            "the row is {a:?} instead of {b:?}"
        );
        Ok(())
    }

    async fn beat(&mut self, client: &Table) -> Verdict {
        let silo = self.any_silo();
        let heartbeat = Heartbeat {
            counter: self.cx.number(),
            at: WallTime::from_millis(self.random.next() % 1_000_000_000_000),
        };
        let write = HeartbeatWrite::Silo { silo, heartbeat };
        if let Err(due) = self.model.update_i_am_alive_sync(&write) {
            self.orphans.insert(silo);
            return match client.update_i_am_alive(&write).await {
                Ok(()) => Ok(()),
                Err(e) if [due.kind(), TableErrorKind::NoSuchRow].contains(&e.kind()) => Ok(()),
                Err(e) => Err(Stop::failed(format!("unexpected error: {e}"))),
            };
        }
        Ok(client.update_i_am_alive(&write).await?)
    }

    async fn cell(&mut self, client: &Table) -> Verdict {
        let text = "c☃".repeat(self.random.below(MAX_CLUSTER_CELL_BYTES / 3));
        let write = HeartbeatWrite::Cluster { text };
        // On an absent table it may become an orphan, which looks like a cell of the next table.
        if self.model.read_sync(&ReadRequest::default()).is_ok() {
            agree(
                client.update_i_am_alive(&write).await,
                self.model.update_i_am_alive_sync(&write),
            )?;
        }
        Ok(())
    }

    fn request(&mut self) -> Option<CommitRequest> {
        let token = self.any_token()?;
        let (mut inserts, mut updates, mut removes) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.random.below(5) {
            let known = self
                .present
                .get(self.random.below(self.present.len()))
                .cloned();
            match (self.random.below(20), known) {
                (0..=7, _) => inserts.push(self.cx.entry()),
                (8..=14, Some(mut e)) => {
                    let statuses = [
                        SiloStatus::Joining,
                        SiloStatus::Active,
                        SiloStatus::ShuttingDown,
                        SiloStatus::Stopping,
                    ];
                    e.status = statuses[self.random.below(statuses.len())];
                    e.info
                        .metadata
                        .insert("n".to_owned(), self.cx.number().to_string());
                    updates.push(e);
                }
                (15..=17, Some(e)) => removes.push(e.address.row_key()),
                (18, Some(e)) => inserts.push(e),
                _ => updates.push(self.cx.entry()),
            }
        }
        let committer = self.random.percent(50).then(|| self.any_silo());
        let mut request = CommitRequest::new(
            token,
            self.cx.commit_id(),
            committer,
            inserts,
            updates,
            removes,
        );
        if self.random.percent(3) {
            request.core = Some("core".repeat(self.random.below(257)).into());
        }
        Some(request)
    }

    async fn commit(&mut self, client: &Table) -> Verdict {
        match self.request() {
            Some(request) => self.send(client, request).await,
            None => Ok(()),
        }
    }

    async fn again(&mut self, client: &Table) -> Verdict {
        let recent = self.sent.len().saturating_sub(1 + self.random.below(24));
        match self.sent.get(recent).map(CommitRequest::again) {
            Some(request) => self.send(client, request).await,
            None => Ok(()),
        }
    }

    async fn send(&mut self, client: &Table, request: CommitRequest) -> Verdict {
        let answers = (
            send(client, &request).await,
            self.model.commit_sync(&request),
        );
        self.sent.push(request.clone());
        if self.sent.len() > MEMORY {
            self.sent.remove(0);
        }
        match agree(answers.0, answers.1)? {
            None => {}
            Some((CommitOutcome::Committed(a), CommitOutcome::Committed(b))) => {
                must!(a.same_commit(&b), "committed as {a:?} instead of {b:?}");
            }
            Some((CommitOutcome::Conflict(a), CommitOutcome::Conflict(b))) => {
                must!(
                    a.newest.is_none() || a.newest == b.newest,
                    "the conflict names {:?} instead of {:?}",
                    a.newest,
                    b.newest
                );
                if let (Some(a), Some(b)) = (a.snapshot, b.snapshot) {
                    same_snapshot(&a, &b)?;
                }
            }
            Some((a, b)) => {
                return Err(Stop::failed(format!(
                    "{request:?} is answered with {a:?} instead of {b:?}"
                )));
            }
        }
        self.refresh()
    }

    /// Reads the present state from the model.
    fn refresh(&mut self) -> Verdict {
        let ReadAnswer::Snapshot { snapshot, .. } =
            (match self.model.read_sync(&ReadRequest::default()) {
                Ok(answer) => answer,
                Err(_) => return Ok(()),
            })
        else {
            return Ok(());
        };
        let before = std::mem::replace(
            &mut self.present,
            snapshot.rows.entries().cloned().collect(),
        );
        self.gone.extend(
            before
                .iter()
                .map(|e| e.address)
                .filter(|silo| snapshot.rows.get(silo).is_none()),
        );
        if self.tokens.last() != Some(&snapshot.token) {
            self.tokens.push(snapshot.token);
        }
        if self.tokens.len() > MEMORY {
            self.tokens.remove(0);
        }
        Ok(())
    }
}
