//! A leader that is frozen until another one leads, and then thawed with clients that are still
//! connected to it. T1, T4, T5, T6, T16.
//!
//! The answers of such a server are the oldest that a client can get: it does not know yet that it
//! leads no longer. This file only stages that, and compares each answer with what the successor
//! has acknowledged.

use std::time::{Duration, Instant};

use membership_core::{
    CommitId, CommitOutcome, CommitRequest, MembershipEntry, NextStep, ReadAnswer, ReadRequest,
    TableError, TableErrorKind, VersionToken,
};
use tokio::task::JoinSet;

use crate::backend::Pinned;
use crate::case::{Case, Cx, Table, Verdict, case, must, read, unknown_answer};
use crate::{Capability, Stop};

pub(super) const CASES: &[Case] = &[case!(a_deposed_leader_is_not_believed: T1 T4 T5 T6 T16)];

/// How many commits the successor acknowledges before the old leader continues.
const COMMITS: usize = 3;
/// How long after the thaw clients are kept on the old leader, and ask it again and again.
const BELIEVES: Duration = Duration::from_secs(1);
/// How long requests have to reach the frozen server, which answers them once it continues.
const SENT: Duration = Duration::from_millis(100);

/// What a client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    /// A read that states no version.
    Read,
    /// A read that states the newest version, of which another silo has told.
    ReadKnown,
    /// A read with a barrier.
    Barrier,
    /// A commit on the version that the old leader has.
    CommitOnOld,
    /// A commit on the newest version.
    CommitOnNewest,
}

const QUESTIONS: [Question; 5] = [
    Question::Read,
    Question::ReadKnown,
    Question::Barrier,
    Question::CommitOnOld,
    Question::CommitOnNewest,
];

/// A client on the old leader, and what it has seen.
struct Client {
    cx: Cx,
    question: Question,
    pinned: Pinned,
    old: VersionToken,
    newest: VersionToken,
    seen: u64,
    /// Its commits: the row, and whether it was acknowledged (None if that is unknown).
    commits: Vec<(MembershipEntry, CommitId, Option<bool>)>,
    /// An acknowledged commit that the successor cannot have.
    forked: Option<VersionToken>,
}

async fn a_deposed_leader_is_not_believed(cx: Cx) -> Verdict {
    cx.needs(Capability::Depose)?;
    let table = cx.table().await?;
    let cluster = table.cluster().clone();
    let first = cx.insert(&read(&table).await?.0.token, [cx.entry(), cx.entry()]);
    let old = crate::case::commit(&table, &first).await?;
    let mut clients = Vec::new();
    for question in QUESTIONS {
        let pinned = cx.backend().pinned(&cluster).await?;
        let seen = read(&pinned.table).await?.0.version();
        clients.push(Client {
            cx: cx.clone(),
            question,
            pinned,
            old: old.clone(),
            newest: old.clone(),
            seen,
            commits: Vec::new(),
            forked: None,
        });
    }
    cx.backend().depose(&cluster).await?;
    let verdict = after(&cx, &cluster, &old, clients).await;
    // Also after a failure: the next case needs all servers.
    cx.backend().thaw(&cluster).await?;
    cx.backend().rejoined(&cluster).await?;
    verdict
}

async fn after(
    cx: &Cx,
    cluster: &membership_core::ClusterName,
    old: &VersionToken,
    clients: Vec<Client>,
) -> Verdict {
    // A client of its own, which has never been connected to the old leader.
    let successor = patient(cx, "a client of the successor", None, || {
        cx.backend().client(cluster)
    })
    .await?;
    let base = patient(cx, "a read from the successor", None, || {
        successor.read(&PLAIN)
    })
    .await?;
    let ReadAnswer::Snapshot { snapshot: base, .. } = base else {
        return Err(unknown_answer(&base));
    };
    must!(
        base.token.same_commit(old),
        "the successor is at {:?}, and {old:?} was acknowledged and read before",
        base.token
    );
    let mut newest = base.token;
    for _ in 0..COMMITS {
        let next = settled(cx, &successor, cx.insert(&newest, [cx.entry()])).await?;
        newest = next.ok_or_else(|| {
            Stop::failed("a commit on the successor conflicts, and there is no other writer")
        })?;
    }
    let mut tasks = JoinSet::new();
    for mut client in clients {
        client.newest = newest.clone();
        tasks.spawn(async move {
            let question = client.question;
            let verdict = client.ask(question).await;
            (client, verdict)
        });
    }
    tokio::time::sleep(SENT).await;
    cx.backend().thaw(cluster).await?;
    let mut asked = Vec::new();
    while let Some(answered) = tasks.join_next().await {
        let (client, verdict) = answered?;
        verdict.map_err(during("what was on its way when the old leader continued"))?;
        asked.push(client);
    }
    let mut rounds = JoinSet::new();
    for mut client in asked {
        rounds.spawn(async move {
            let end = Instant::now() + BELIEVES;
            let mut verdict = Ok(());
            while verdict.is_ok() && Instant::now() < end {
                verdict = client.ask_again().await;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            (client, verdict)
        });
    }
    let mut asked = Vec::new();
    while let Some(answered) = rounds.join_next().await {
        let (client, verdict) = answered?;
        verdict.map_err(during("after the old leader continued"))?;
        asked.push(client);
    }
    cx.backend().rejoined(cluster).await?;
    for client in &mut asked {
        client.end().await?;
    }
    holds(&asked, &read(&successor).await?.0)?;
    let answers: usize = asked.iter().map(|client| client.commits.len()).sum();
    cx.measured(format!(
        "{answers} commits sent to the old leader, {} of them acknowledged and lost",
        asked.iter().filter(|c| c.forked.is_some()).count()
    ));
    Ok(())
}

/// Also where a barrier needs more servers than are left.
static PLAIN: ReadRequest = ReadRequest::all().with_heartbeats(false);
static BARRIER: ReadRequest = ReadRequest::all().with_heartbeats(false).with_barrier(true);

impl Client {
    fn table(&self) -> &Table {
        &self.pinned.table
    }

    /// Whether answers without a barrier must be the newest, too.
    fn linearizable(&self) -> bool {
        self.cx.must_be_linearizable(&**self.table())
    }

    async fn ask(&mut self, question: Question) -> Verdict {
        let named = during(format!("{question:?}"));
        let verdict = match question {
            Question::Read => self.read(ReadRequest::all()).await,
            Question::ReadKnown => {
                self.read(ReadRequest::all().with_known(self.newest.clone()))
                    .await
            }
            Question::Barrier => self.read(BARRIER.clone()).await,
            Question::CommitOnOld => self.commit(self.old.clone()).await,
            Question::CommitOnNewest => self.commit(self.newest.clone()).await,
        };
        verdict.map_err(named)
    }

    /// The same, without more commits: they would move the version that the others take for the
    /// newest.
    async fn ask_again(&mut self) -> Verdict {
        let question = match self.question {
            Question::CommitOnOld => Question::Read,
            Question::CommitOnNewest => Question::ReadKnown,
            other => other,
        };
        // A commit of its own that is lost is reported at the end.
        match self.forked {
            Some(_) => Ok(()),
            None => self.ask(question).await,
        }
    }

    async fn read(&mut self, request: ReadRequest) -> Verdict {
        let newest = self.newest.version();
        let known = request.known.is_some();
        // A barrier shows the newest version, and so does any read that must be linearizable. Who
        // states a version gets nothing older either. Others get nothing older than they have seen.
        let due = match request.barrier || known || self.linearizable() {
            true => newest,
            false => self.seen,
        };
        match self
            .cx
            .in_time("a read", self.table().read(&request))
            .await?
        {
            Ok(ReadAnswer::Snapshot { snapshot, .. }) => {
                must!(
                    snapshot.version() >= due,
                    "version {} is shown, and {due} is due: the newest is {newest}",
                    snapshot.version()
                );
                self.seen = self.seen.max(snapshot.version());
                Ok(())
            }
            Ok(ReadAnswer::Unchanged { .. }) if known => {
                self.seen = newest;
                Ok(())
            }
            Ok(other) => Err(unknown_answer(&other)),
            Err(e) => self.excused(&e, known || self.seen > self.old.version()),
        }
    }

    /// An error has to say that the client may try again. A server with an older table may call a
    /// newer version rolled back where reads need not be linearizable; the read over a new
    /// connection takes that back.
    fn excused(&self, e: &TableError, states_newer: bool) -> Verdict {
        let temporary = e.next_step() != NextStep::GiveUp;
        let in_doubt =
            e.kind() == TableErrorKind::TableRolledBack && states_newer && !self.linearizable();
        must!(
            temporary || in_doubt,
            "an error after which no silo tries again: {:?}: {e}",
            e.kind()
        );
        Ok(())
    }

    async fn commit(&mut self, on: VersionToken) -> Verdict {
        let row = self.cx.entry();
        let request = self.cx.insert(&on, [row.clone()]);
        let is_old = on.version() == self.old.version();
        let answer = self
            .cx
            .in_time("a commit", self.table().commit(&request))
            .await?;
        let acknowledged = match answer {
            Ok(CommitOutcome::Committed(token)) => {
                if is_old {
                    // The successor made that version by another commit.
                    must!(
                        !self.cx.must_keep_commits(&**self.table()),
                        "a commit on version {} is acknowledged as {token:?}, and the successor is at {:?}",
                        on.version(),
                        self.newest
                    );
                    self.forked = Some(token);
                }
                Some(true)
            }
            Ok(CommitOutcome::Conflict(conflict)) => {
                must!(
                    is_old || !self.linearizable(),
                    "a commit on the newest version conflicts with {:?}",
                    conflict.newest
                );
                Some(false)
            }
            Ok(other) => return Err(unknown_answer(&other)),
            Err(e) => {
                self.excused(&e, !is_old)?;
                (e.next_step() != NextStep::FindOut).then_some(false)
            }
        };
        self.commits.push((row, request.id, acknowledged));
        Ok(())
    }

    /// The client goes where the cluster is. It learns of a commit that is lost, and of nothing
    /// else, and goes on.
    async fn end(&mut self) -> Verdict {
        self.pinned.release();
        if let Some(lost) = self.forked.clone() {
            let request = ReadRequest::all()
                .with_known(lost)
                .with_new_connection(true);
            let told = TableErrorKind::TableRolledBack;
            let answer = patient(&self.cx, "a lost commit", Some(told), || {
                self.table().read(&request)
            });
            must!(
                answer.await.is_err(),
                "an acknowledged commit is lost, and its client is not told"
            );
        }
        // Over a new connection, as core reads before it believes that a table is another one.
        let request = ReadRequest::all()
            .with_known(self.newest.clone())
            .with_new_connection(true);
        let what = "a read over a new connection that states the newest version";
        patient(&self.cx, what, None, || self.table().read(&request)).await?;
        // A commit of unknown outcome may still arrive in between.
        for _ in 0..5 {
            let answer = patient(&self.cx, "a read afterwards", None, || {
                self.table().read(&BARRIER)
            });
            let ReadAnswer::Snapshot { snapshot, .. } = answer.await? else {
                return Err(Stop::failed("a read without a known version is unchanged"));
            };
            let request = self.cx.insert(&snapshot.token, [self.cx.entry()]);
            if settled(&self.cx, self.table(), request).await?.is_some() {
                return Ok(());
            }
        }
        Err(Stop::failed(
            "no commit lands, and there is no other writer",
        ))
    }
}

/// What was acknowledged is there, unless it was told as lost; what certainly did not happen is
/// not.
fn holds(clients: &[Client], last: &membership_core::Snapshot) -> Verdict {
    for client in clients {
        for (row, id, acknowledged) in &client.commits {
            let there = last.rows.get(&row.address).is_some();
            let due = match (acknowledged, &client.forked) {
                (None, _) => continue,
                (Some(_), Some(_)) => false,
                (Some(acknowledged), None) => *acknowledged,
            };
            must!(
                there == due,
                "{:?}: commit {id}: its row is {}, and it {}",
                client.question,
                if there { "there" } else { "not there" },
                if *acknowledged == Some(true) {
                    "was acknowledged"
                } else {
                    "certainly did not happen"
                }
            );
        }
    }
    Ok(())
}

fn during(what: impl std::fmt::Display) -> impl FnOnce(Stop) -> Stop {
    move |stop| match stop {
        Stop::Failed(why) => Stop::Failed(format!("{what}: {why}")),
        other => other,
    }
}

/// Repeats an operation while its error says so. `until` is the kind of error that is waited for.
async fn patient<T, F>(
    cx: &Cx,
    what: &str,
    until: Option<TableErrorKind>,
    mut ask: impl FnMut() -> F,
) -> Result<T, Stop>
where
    F: Future<Output = Result<T, TableError>>,
{
    let deadline = Instant::now() + 2 * cx.effort().operation_timeout;
    loop {
        match cx.in_time(what, ask()).await? {
            Ok(answer) if until.is_none() || Instant::now() > deadline => return Ok(answer),
            Ok(_) => {}
            Err(e) if Some(e.kind()) == until => return Err(e.into()),
            Err(e) if e.next_step() == NextStep::GiveUp || Instant::now() > deadline => {
                return Err(Stop::failed(format!("{what}: {:?}: {e}", e.kind())));
            }
            Err(_) => {}
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A commit, sent again until its outcome is known. None after a conflict.
async fn settled(
    cx: &Cx,
    table: &Table,
    mut request: CommitRequest,
) -> Result<Option<VersionToken>, Stop> {
    let deadline = Instant::now() + 2 * cx.effort().operation_timeout;
    loop {
        match cx.in_time("a commit", table.commit(&request)).await? {
            Ok(CommitOutcome::Committed(token)) => return Ok(Some(token)),
            Ok(CommitOutcome::Conflict(_)) => return Ok(None),
            Ok(other) => return Err(unknown_answer(&other)),
            Err(e) if e.next_step() == NextStep::GiveUp || Instant::now() > deadline => {
                return Err(e.into());
            }
            Err(e) if e.next_step() == NextStep::FindOut => request = request.again(),
            Err(_) => {}
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
