//! A client behind a proxy, and a second client beside it, which reads what really happened.

use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use membership_core::{
    CommitOutcome, Heartbeat, HeartbeatWrite, InitializeRequest, MembershipEntry, NextStep,
    ReadAnswer, ReadRequest, Snapshot, TableError, TableErrorKind, TableId, WallTime,
};

use super::judge::Decide;
use super::operation::{Operation, ask};
use crate::case::{Cx, Table, Verdict, commit, must, read};
use crate::proxy::Proxy;
use crate::{Capability, Proxied, Stop};

/// How often an operation is counted to learn its number of requests.
const WATCHED: usize = 2;
/// How often a fault is set for a request that the operation makes, if the fault hit something
/// else.
const ATTEMPTS: usize = 3;
/// How often the requests are counted again after these attempts.
const COUNTED: usize = 3;

/// A client whose connections go through a proxy, and the table's other client, the judge.
///
/// The judge sends nothing during a fault or a count: some stores have only one way for all their
/// clients.
pub(super) struct Route {
    pub cx: Cx,
    pub table: Table,
    pub proxy: Proxy,
    pub judge: Table,
    /// Three silos that always have a row.
    pub silos: [MembershipEntry; 3],
    /// Every table id that a client asked for: one that was dropped may still make its table.
    offered: Mutex<Vec<TableId>>,
}

impl Route {
    /// Opens a new table with three rows, and warms the client up.
    pub async fn open(cx: &Cx) -> Result<Self, Stop> {
        cx.needs(Capability::Proxy)?;
        let cluster = cx.cluster()?;
        let judge = cx.client(&cluster).await?;
        judge.initialize(&cx.initialize_request()).await?;
        let Proxied { table, proxy } = cx.backend().proxied(&cluster).await?;
        let route = Self {
            cx: cx.clone(),
            table,
            proxy,
            judge,
            silos: [cx.entry(), cx.entry(), cx.entry()],
            offered: Mutex::default(),
        };
        route.fill().await?;
        route.warm().await?;
        Ok(route)
    }

    async fn fill(&self) -> Verdict {
        let token = read(&self.judge).await?.0.token;
        commit(&self.judge, &self.cx.insert(&token, self.silos.clone())).await?;
        for silo in &self.silos {
            self.judge.update_i_am_alive(&self.beat(silo)).await?;
        }
        Ok(())
    }

    /// Deletes the table and creates it again.
    pub async fn reset(&self) -> Verdict {
        self.judge.delete().await?;
        self.found().await
    }

    /// Creates a table, with its rows.
    pub async fn found(&self) -> Verdict {
        self.judge.initialize(&self.offer()).await?;
        self.fill().await
    }

    /// A request to create the table.
    pub fn offer(&self) -> InitializeRequest {
        let request = self.cx.initialize_request();
        self.offers().push(request.table_id);
        request
    }

    /// Whether any client asked for a table with this id.
    pub fn was_offered(&self, id: TableId) -> bool {
        self.offers().contains(&id)
    }

    fn offers(&self) -> MutexGuard<'_, Vec<TableId>> {
        self.offered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn beat(&self, silo: &MembershipEntry) -> HeartbeatWrite {
        let counter = self.cx.number();
        HeartbeatWrite::Silo {
            silo: silo.address,
            heartbeat: Heartbeat {
                counter,
                at: WallTime::from_millis(counter),
            },
        }
    }

    /// Repeats all operations until all of them work, so that connections are set up and statements
    /// prepared.
    pub async fn warm(&self) -> Verdict {
        self.patient("a client behind a proxy without faults", || {
            self.everything()
        })
        .await
    }

    async fn everything(&self) -> Result<(), TableError> {
        let table = &self.table;
        let ReadAnswer::Snapshot { snapshot, .. } = table.read(&ReadRequest::all()).await? else {
            return Ok(());
        };
        table
            .read(
                &ReadRequest::all()
                    .with_known(snapshot.token.clone())
                    .with_barrier(true),
            )
            .await?;
        table.read_row(&self.silos[0].address, None).await?;
        table.update_i_am_alive(&self.beat(&self.silos[0])).await?;
        let request = self.cx.update(&snapshot.token, [self.marked(&snapshot)]);
        table.commit(&request).await?;
        // Either answer of the first is fine: this one is a conflict, or the commit's own success.
        table
            .commit(&request.again())
            .await
            .map(|_: CommitOutcome| ())
    }

    /// If both clients share a way, the judge has to reconnect too before it can read. What it
    /// reads, or that there is no table, does not matter here.
    pub async fn judge_is_back(&self) -> Verdict {
        let finds = || async {
            match self.judge.read(&ReadRequest::all()).await {
                Err(e) if e.next_step() == NextStep::Retry => Err(e),
                _ => Ok(()),
            }
        };
        self.patient("the other client, after the server is back", finds)
            .await
    }

    /// The least number of requests that an operation makes without faults. Every fault must hit
    /// each of them.
    pub async fn requests(&self, operation: Operation) -> Result<u64, Stop> {
        let mut fewest = u64::MAX;
        for _ in 0..WATCHED {
            self.warm().await?;
            let prepared = self.prepare(operation).await?;
            let counter = self.proxy.count();
            let answer = self.cx.in_time("it", ask(&self.table, &prepared)).await?;
            fewest = fewest.min(counter.so_far());
            if let Some(e) = answer.error() {
                return Err(Stop::failed(format!(
                    "{operation}: an error without a fault: {e}"
                )));
            }
            self.judge(&prepared, Some(answer), Decide::ByItself)
                .await?;
        }
        must!(
            fewest > 0,
            "{operation}: nothing of it passes through the proxy"
        );
        Ok(fewest)
    }

    /// Repeats a fault until it hits this request of an operation. Fails if it never hits although
    /// the operation makes that many requests without faults. Returns true if it hit.
    ///
    /// What a client sends without waiting is one request or several, depending on timing. So if
    /// nothing is hit, the requests are counted again.
    pub async fn hit<F>(
        &self,
        operation: Operation,
        exchange: u64,
        requests: u64,
        mut fault: impl FnMut() -> F,
    ) -> Result<bool, Stop>
    where
        F: Future<Output = Result<bool, Stop>>,
    {
        let due = exchange < requests;
        for _ in 0..COUNTED {
            for _ in 0..if due { ATTEMPTS } else { 1 } {
                if fault().await? {
                    return Ok(true);
                }
            }
            if !due || self.requests(operation).await? <= exchange {
                return Ok(false);
            }
        }
        let attempts = COUNTED * ATTEMPTS;
        Err(Stop::failed(format!(
            "the fault hit nothing in {attempts} attempts, although the operation makes that request without faults"
        )))
    }

    /// The first silo, with a new mark in its row.
    pub fn marked(&self, now: &Snapshot) -> MembershipEntry {
        let mut entry = now
            .rows
            .get(&self.silos[0].address)
            .cloned()
            .unwrap_or_else(|| self.silos[0].clone());
        entry.info.role = format!("mark {}", self.cx.number());
        entry
    }

    /// Waits until the judge gets through, with any answer: a shared way takes a moment to open
    /// again.
    pub async fn open_again(&self) -> Verdict {
        let answered = async || match self.judge.read(&ReadRequest::all()).await {
            Err(e) if e.kind() == TableErrorKind::Unavailable => Err(e),
            _ => Ok(()),
        };
        self.patient("another client, after the server is back", answered)
            .await
    }

    /// Repeats an operation until it succeeds. Fails after an error that says that a retry is
    /// useless, and after a timeout.
    pub async fn patient<T, F>(&self, what: &str, mut ask: impl FnMut() -> F) -> Result<T, Stop>
    where
        F: Future<Output = Result<T, TableError>>,
    {
        let deadline = Instant::now() + self.cx.effort().operation_timeout;
        loop {
            match self.cx.in_time(what, ask()).await? {
                Ok(answer) => return Ok(answer),
                Err(e) if e.next_step() == NextStep::GiveUp => {
                    return Err(Stop::failed(format!(
                        "{what}: the error says that a retry is useless: {e}"
                    )));
                }
                Err(e) if Instant::now() > deadline => {
                    return Err(Stop::failed(format!(
                        "{what}: an error although all faults have ended: {e}"
                    )));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }
}
