//! A client behind a proxy, and a second one beside it that tells the truth.

use std::future::Future;
use std::time::{Duration, Instant};

use membership_core::{
    CommitOutcome, Heartbeat, HeartbeatWrite, MembershipEntry, NextStep, ReadAnswer, ReadRequest,
    Snapshot, TableError, TableErrorKind, WallTime,
};

use super::judge::Decide;
use super::operation::{Operation, ask};
use crate::case::{Cx, Table, Verdict, commit, must, read};
use crate::proxy::Proxy;
use crate::{Capability, Proxied, Stop};

/// How often an operation is watched to learn how many requests it makes.
const WATCHED: usize = 2;
/// How often a fault is set for a request that is known to come, and that something else was hit in the place of.
const ATTEMPTS: usize = 3;
/// How often, after so many attempts, the requests are counted again.
const COUNTED: usize = 3;

/// A client whose connections go through a proxy, and the table's other client.
///
/// The other one is asked nothing while something goes wrong or is counted: a store may have only one way for all its clients.
pub(super) struct Route {
    pub cx: Cx,
    pub table: Table,
    pub proxy: Proxy,
    pub judge: Table,
    /// Three silos that always have a row.
    pub silos: [MembershipEntry; 3],
}

impl Route {
    /// A new table with three rows, and the client warmed up.
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

    /// The table from its beginning.
    pub async fn reset(&self) -> Verdict {
        self.judge.delete().await?;
        self.found().await
    }

    /// A table that is not there, with its rows.
    pub async fn found(&self) -> Verdict {
        self.judge.initialize(&self.cx.initialize_request()).await?;
        self.fill().await
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

    /// Does everything once and again until all of it works: connections are set up and statements prepared.
    pub async fn warm(&self) -> Verdict {
        self.patient("a client behind a proxy that lets everything pass", || {
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
        // Whatever came of the first: a conflict, or one's own success.
        table
            .commit(&request.again())
            .await
            .map(|_: CommitOutcome| ())
    }

    /// Where both clients take the same way, the other one too has to find back before it can tell the truth. What it finds, or that there is
    /// no table, is not looked at here.
    pub async fn judge_is_back(&self) -> Verdict {
        let finds = || async {
            match self.judge.read(&ReadRequest::all()).await {
                Err(e) if e.next_step() == NextStep::Retry => Err(e),
                _ => Ok(()),
            }
        };
        self.patient("the other client, the server being back", finds)
            .await
    }

    /// How many requests an operation makes when nothing goes wrong, at the least. Each of them must be hit where something is to go wrong.
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
                    "{operation}: nothing went wrong, and still: {e}"
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

    /// Makes something go wrong with this request of an operation until it does, and fails where it never does although the operation makes
    /// that many requests when nothing goes wrong. True when it was hit.
    ///
    /// What a client sends without waiting is one request or several, as the moment has it: where nothing is hit, they are counted again.
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
            "it never happened: in {attempts} attempts nothing was hit, although the request is made when nothing goes wrong"
        )))
    }

    /// The first silo, with something new in its row.
    pub fn marked(&self, now: &Snapshot) -> MembershipEntry {
        let mut entry = now
            .rows
            .get(&self.silos[0].address)
            .cloned()
            .unwrap_or_else(|| self.silos[0].clone());
        entry.info.role = format!("mark {}", self.cx.number());
        entry
    }

    /// Waits until the other client gets through, whatever it is answered: where there is one way for all, it takes a moment to open again.
    pub async fn open_again(&self) -> Verdict {
        let answered = async || match self.judge.read(&ReadRequest::all()).await {
            Err(e) if e.kind() == TableErrorKind::Unavailable => Err(e),
            _ => Ok(()),
        };
        self.patient("another client, when the server is back", answered)
            .await
    }

    /// Asks until there is an answer. Errors that say that trying again is useless are failures, as is no answer in time.
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
                        "{what}: it says that trying again is useless: {e}"
                    )));
                }
                Err(e) if Instant::now() > deadline => {
                    return Err(Stop::failed(format!(
                        "{what}: nothing goes wrong any more, and still: {e}"
                    )));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }
}
