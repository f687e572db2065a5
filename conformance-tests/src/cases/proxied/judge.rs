//! Compares an answer with what really happened, after all faults have ended. Leaves a table with
//! its three rows.

use membership_core::{
    CommitOutcome, HeartbeatWrite, Heartbeats, NextStep, ReadAnswer, ReadRequest, RowRead,
    Snapshot, TableError, TableErrorKind,
};

use super::operation::{Answered, Operation, Prepared};
use super::route::Route;
use crate::Stop;
use crate::case::{Verdict, commit, must, read, send, unknown_answer};

/// How the outcome of an open commit is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decide {
    /// The client sends it again.
    ByItself,
    /// Another client commits first; then the client sends it again.
    ByAnother,
}

/// A table in one line.
fn brief(snapshot: &Snapshot) -> String {
    let rows: Vec<String> = snapshot
        .rows
        .entries()
        .map(|e| {
            format!(
                "{} (version {}, {:?})",
                e.address, e.written_at, e.info.role
            )
        })
        .collect();
    format!(
        "version {} by commit {} with {}",
        snapshot.version(),
        snapshot.token.commit(),
        rows.join(", ")
    )
}

/// An answer to a commit in one line.
fn describe(answer: &Result<CommitOutcome, TableError>) -> String {
    match answer {
        Ok(CommitOutcome::Committed(token)) => format!("committed as version {}", token.version()),
        Ok(CommitOutcome::Conflict(conflict)) => match &conflict.newest {
            Some(newest) => format!(
                "a conflict with commit {} of version {}",
                newest.id, newest.version
            ),
            None => "a conflict that names no commit".to_owned(),
        },
        Ok(other) => format!("{other:?}"),
        Err(e) => format!("an error of kind {:?}: {e}", e.kind()),
    }
}

impl Route {
    /// Compares an answer, or none if no caller waited for it, with what happened.
    pub async fn judge(
        &self,
        prepared: &Prepared,
        answer: Option<Answered>,
        decide: Decide,
    ) -> Verdict {
        if let Some(e) = answer.as_ref().and_then(Answered::error)
            && e.next_step() == NextStep::GiveUp
        {
            return Err(Stop::failed(format!(
                "the error says that a retry is useless: {e}"
            )));
        }
        match (prepared.operation, answer) {
            (Operation::Initialize, answer) => self.initialized(prepared, answer).await,
            (Operation::Delete, answer) => self.deleted(prepared, answer).await,
            (Operation::Beat, Some(Answered::Done(answer))) => {
                self.beaten(prepared, Some(answer)).await
            }
            (Operation::Beat, _) => self.beaten(prepared, None).await,
            (_, Some(Answered::Read(Ok(answer)))) => self.shown(prepared, answer),
            (_, Some(Answered::Row(Ok(answer)))) => self.row_shown(prepared, &answer),
            (Operation::Read | Operation::ReadRow, _) => {
                let now = read(&self.judge).await?;
                crate::case::same("a read", &prepared.before, &now)
            }
            (_, Some(Answered::Commit(answer))) => {
                self.committed(prepared, Some(answer), decide).await
            }
            (_, _) => self.committed(prepared, None, decide).await,
        }
    }

    /// Whether reads without a barrier show every earlier commit.
    fn linearizable(&self) -> bool {
        self.cx.must_be_linearizable(&*self.table)
    }

    fn shown(&self, prepared: &Prepared, answer: ReadAnswer) -> Verdict {
        let ReadAnswer::Snapshot {
            snapshot,
            heartbeats,
        } = answer
        else {
            return Err(Stop::failed(
                "a read without a known version was answered with unchanged",
            ));
        };
        let (before, beats) = &prepared.before;
        if snapshot.version() < before.version() && !self.linearizable() {
            return Ok(());
        }
        let same = snapshot.token.same_commit(&before.token) && snapshot.rows == before.rows;
        must!(
            same,
            "the read shows {}, the table is {}",
            brief(&snapshot),
            brief(before)
        );
        let seen = heartbeats.unwrap_or_default();
        must!(
            !self.linearizable() || seen == *beats,
            "the read shows the heartbeats {seen:?}, they are {beats:?}"
        );
        Ok(())
    }

    fn row_shown(&self, prepared: &Prepared, answer: &RowRead) -> Verdict {
        let (before, beats) = &prepared.before;
        if answer.token.version() < before.version() && !self.linearizable() {
            return Ok(());
        }
        let due = before.rows.get(&prepared.silo).map(|e| e.address.row_key());
        let row = answer.row.as_ref();
        must!(
            answer.token.same_commit(&before.token)
                && row == due.as_ref().and_then(|key| before.rows.by_key(key)),
            "the row of {} reads as {answer:?}, the table is {}",
            prepared.silo,
            brief(before)
        );
        let beat = beats.silos.get(&prepared.silo).copied();
        must!(
            !self.linearizable() || answer.heartbeat == beat,
            "the read shows the heartbeat {:?}, it is {beat:?}",
            answer.heartbeat
        );
        Ok(())
    }

    async fn initialized(&self, prepared: &Prepared, answer: Option<Answered>) -> Verdict {
        let other = self.offer();
        self.patient("initialize by another client", || {
            self.judge.initialize(&other)
        })
        .await?;
        let (now, _) = read(&self.judge).await?;
        must!(
            now.version() == 0 && now.rows.is_empty(),
            "a new table is at version {} with {} rows",
            now.version(),
            now.rows.len()
        );
        // A request that was dropped earlier may have arrived only now.
        must!(
            self.was_offered(now.table_id()),
            "no client offered the table id {}",
            now.table_id()
        );
        if let Some(Answered::Done(Ok(()))) = answer {
            must!(
                now.table_id() != other.table_id,
                "the answer says that the table existed, but it did not"
            );
        }
        self.patient("initialize once more", || {
            self.table.initialize(&prepared.initialize)
        })
        .await?;
        let (again, _) = read(&self.judge).await?;
        must!(
            again == now,
            "a second initialize changed {} to {}",
            brief(&again),
            brief(&now)
        );
        self.reset().await
    }

    async fn deleted(&self, prepared: &Prepared, answer: Option<Answered>) -> Verdict {
        let fresh = self.cx.another(&self.judge).await?;
        let state = fresh.read(&ReadRequest::all().with_barrier(true)).await;
        let gone = matches!(&state, Err(e) if e.kind() == TableErrorKind::NotInitialized);
        let begun = matches!(&state, Err(e) if e.kind() == TableErrorKind::BeingDeleted);
        let whole = matches!(&state, Ok(ReadAnswer::Snapshot { snapshot, .. }) if *snapshot == prepared.before.0);
        must!(
            gone || begun || whole,
            "the table neither exists, nor is being deleted, nor is gone: {state:?}"
        );
        if let Some(Answered::Done(Ok(()))) = answer {
            must!(
                gone,
                "the answer says that the table is gone, but it is not: {state:?}"
            );
        }
        self.patient("delete once more", || self.table.delete())
            .await?;
        let state = fresh.read(&ReadRequest::all()).await;
        must!(
            matches!(&state, Err(e) if e.kind() == TableErrorKind::NotInitialized),
            "the table still exists after a second delete: {state:?}"
        );
        self.reset().await
    }

    async fn beaten(&self, prepared: &Prepared, answer: Option<Result<(), TableError>>) -> Verdict {
        let HeartbeatWrite::Silo { silo, heartbeat } = &prepared.beat else {
            return Ok(());
        };
        let now = read(&self.judge).await?;
        let (old, seen) = (prepared.before.1.silos.get(silo), now.1.silos.get(silo));
        let landed = seen == Some(heartbeat);
        must!(
            landed || seen == old,
            "the heartbeat is {seen:?}, neither the old {old:?} nor the new {heartbeat:?}"
        );
        match answer {
            Some(Ok(())) => must!(
                landed,
                "the answer says that the heartbeat is written, but it is {seen:?}"
            ),
            Some(Err(e)) if e.next_step() == NextStep::Retry => {
                must!(
                    !landed,
                    "the answer says that the heartbeat is certainly not written, but it is: {e}"
                );
            }
            _ => {}
        }
        let without = |beats: &Heartbeats| {
            let mut beats = crate::case::shown(beats);
            beats.silos.remove(silo);
            beats
        };
        must!(
            without(&now.1) == without(&prepared.before.1),
            "another heartbeat changed: {:?}",
            now.1
        );
        crate::case::same(
            "a heartbeat",
            &(prepared.before.0.clone(), Heartbeats::default()),
            &(now.0, Heartbeats::default()),
        )?;
        self.patient("a heartbeat once more", || {
            self.table.update_i_am_alive(&prepared.beat)
        })
        .await
    }

    async fn committed(
        &self,
        prepared: &Prepared,
        answer: Option<Result<CommitOutcome, TableError>>,
        decide: Decide,
    ) -> Verdict {
        let request = &prepared.request;
        let (before, made) = (&prepared.before.0, request.next_version());
        let with_it = request.apply_to(before, request.next_token(&[]));
        let said = answer
            .as_ref()
            .map_or_else(|| "(no caller waited for the answer)".to_owned(), describe);
        let mut due = None;
        if decide == Decide::ByAnother {
            due = Some(self.overtake(before, &with_it).await?);
        }
        let landed = due.as_ref().map(|due| {
            due.version_row
                .record(made)
                .is_some_and(|r| r.id == request.id)
        });
        match &answer {
            Some(Ok(CommitOutcome::Conflict(c))) if landed == Some(true) => {
                return Err(Stop::failed(format!(
                    "one's own success is called a conflict with {:?}",
                    c.newest
                )));
            }
            Some(Ok(CommitOutcome::Conflict(c))) => {
                return Err(Stop::failed(format!(
                    "a conflict although there is no other client: {:?}",
                    c.newest
                )));
            }
            Some(Ok(CommitOutcome::Committed(token))) => {
                must!(
                    landed != Some(false),
                    "the answer says that the commit happened, but it did not"
                );
                must!(
                    token.version() == made && token.commit() == request.id,
                    "the answer has the token {token:?}"
                );
            }
            // A commit that is sent again did not happen this time; its first sending may have.
            Some(Err(e))
                if e.next_step() == NextStep::Retry
                    && prepared.operation != Operation::CommitAgain =>
            {
                must!(
                    landed != Some(true),
                    "the answer says that the commit certainly did not happen, but it did: {e}"
                );
            }
            _ => {}
        }
        let again = request.again();
        let outcome = self
            .patient("the commit sent again", || self.table.commit(&again))
            .await?;
        match (&outcome, landed) {
            (CommitOutcome::Committed(token), None | Some(true)) => {
                must!(
                    token.version() == made && token.commit() == request.id,
                    "sent again, the answer has the token {token:?}"
                );
            }
            (CommitOutcome::Conflict(_), Some(false)) => {}
            (answer, Some(true)) => {
                return Err(Stop::failed(format!(
                    "the commit had happened; sent again, it is answered with {answer:?}, after {said}"
                )));
            }
            (answer, _) => {
                return Err(Stop::failed(format!(
                    "the commit had not happened; sent again, it is answered with {answer:?}, after {said}"
                )));
            }
        }
        let due = due.unwrap_or(with_it);
        let (now, _) = read(&self.judge).await?;
        must!(
            now.version() == due.version()
                && now.rows == due.rows
                && now.version_row.row_count == due.version_row.row_count,
            "the table is {} instead of {}, after the answer {said}",
            brief(&now),
            brief(&due)
        );
        Ok(())
    }

    /// Another client commits on the present version. From then on the outcome is settled. Returns
    /// the expected table.
    async fn overtake(&self, before: &Snapshot, with_it: &Snapshot) -> Result<Snapshot, Stop> {
        let deadline = std::time::Instant::now() + self.cx.effort().operation_timeout;
        loop {
            let (now, _) = read(&self.judge).await?;
            let base = if now.token.same_commit(&before.token) {
                before
            } else if now.token.same_commit(&with_it.token) {
                with_it
            } else {
                return Err(Stop::failed(format!(
                    "the table is {}, neither before nor after the commit",
                    brief(&now)
                )));
            };
            must!(
                now.rows == base.rows,
                "the table is {} instead of {}",
                brief(&now),
                brief(base)
            );
            let request = self.cx.insert(&now.token, [self.cx.entry()]);
            match send(&self.judge, &request).await? {
                CommitOutcome::Committed(token) => return Ok(request.apply_to(base, token)),
                CommitOutcome::Conflict(_) => must!(
                    std::time::Instant::now() < deadline,
                    "another client's commits conflict without a cause"
                ),
                other => return Err(unknown_answer(&other)),
            }
        }
    }

    /// Checks that the client's next answers belong to its next requests.
    pub async fn questions(&self) -> Verdict {
        for silo in [&self.silos[1], &self.silos[2], &self.silos[0]] {
            let row = self
                .patient("the next read_row", || {
                    self.table.read_row(&silo.address, None)
                })
                .await?
                .row;
            let shown = row.as_ref().and_then(|r| r.entry()).map(|e| e.address);
            must!(
                shown == Some(silo.address),
                "a read of the row of {} returns that of {shown:?}",
                silo.address
            );
        }
        let nobody = self.cx.entry().address;
        let row = self
            .patient("the next read_row", || self.table.read_row(&nobody, None))
            .await?
            .row;
        must!(row.is_none(), "a read of a missing row returns {row:?}");
        let barrier = ReadRequest::all().with_barrier(true);
        let answer = self
            .patient("the next read", || self.table.read(&barrier))
            .await?;
        let now = read(&self.judge).await?;
        let ReadAnswer::Snapshot {
            snapshot,
            heartbeats,
        } = answer
        else {
            return Err(Stop::failed(
                "a read without a known version was answered with unchanged",
            ));
        };
        crate::case::same(
            "the same table, read by two clients",
            &now,
            &(snapshot, heartbeats.unwrap_or_default()),
        )?;
        let token = now.0.token.clone();
        commit(&self.table, &self.cx.update(&token, [self.marked(&now.0)])).await?;
        Ok(())
    }
}
