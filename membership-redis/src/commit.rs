//! `commit`: one script that compares and writes. Clauses T1 to T5.

use membership_core::{
    CommitOutcome, CommitRequest, Conflict, Operation, RowChange, Settled, Snapshot, TableError,
    TableErrorKind,
};
use membership_provider::{json, merge_rows};
use redis::Value;

use crate::STORE;
use crate::client::{Inner, LIMITS, Look, Request};
use crate::codec::{self, Pair, flag};
use crate::error::{error, unexpected_after_write};
use crate::scripts::SCRIPTS;

impl Inner {
    /// # Errors
    /// As [`MembershipTable::commit`](membership_core::MembershipTable::commit), of this sending
    /// alone.
    pub(crate) async fn commit(
        &self,
        request: &CommitRequest,
    ) -> Result<CommitOutcome, TableError> {
        self.look_twice(false, |look| self.commit_once(request, look))
            .await
    }

    async fn commit_once(
        &self,
        request: &CommitRequest,
        look: Look,
    ) -> Result<CommitOutcome, TableError> {
        let mut call = self.commit_call(request);
        call.look = Some(look);
        let answer = self.client.run(&call).await?;
        let confirmed = self
            .client
            .check_confirmed(&answer, "the master has the commit");
        match answer.value {
            Value::Int(1 | 2) => {
                confirmed?;
                let token = request.next_token(&[]);
                self.cache.committed(request, &token);
                Ok(CommitOutcome::Committed(token))
            }
            Value::Int(3) => Err(error(
                TableErrorKind::LimitExceeded,
                format!("the table would have more than {} rows", LIMITS.rows),
            )),
            other => match codec::parts::<2>(other) {
                Ok((0, [version, rows])) => {
                    self.refused(request, &codec::pairs(version), &codec::pairs(rows))
                }
                Ok((_, [other, _])) | Err(other) => Err(unexpected_after_write(&other)),
            },
        }
    }

    fn commit_call(&self, request: &CommitRequest) -> Request<'static> {
        let keys = &self.keys;
        let mut call = Request::script(
            Operation::Commit,
            &SCRIPTS.commit,
            &[&keys.version, &keys.rows, &keys.heartbeats],
            true,
        );
        call.confirmed = true;
        let (mut inserts, mut updates, mut removes) = (Vec::new(), Vec::new(), Vec::new());
        for change in &request.changes {
            match change {
                RowChange::Insert(row) => inserts.push(row),
                RowChange::Update(row) => updates.push(row),
                RowChange::Remove(key) => removes.push(key),
            }
        }
        let settings = request.settings.as_ref().map(json).unwrap_or_default();
        let core = request
            .core
            .as_ref()
            .map(|core| format!("={}", core.stored()))
            .unwrap_or_default();
        call.command
            .arg(&codec::token(Some(&request.expected)))
            .arg(request.next_version())
            .arg(request.id.to_string())
            .arg(codec::record_field(request.next_version()))
            .arg(json(&request.record()))
            .arg(request.added_rows())
            .arg(LIMITS.rows)
            .arg(settings)
            .arg(core)
            .arg(&keys.channel)
            .arg(flag(self.client.replicas() > 0))
            .arg(inserts.len())
            .arg(updates.len())
            .arg(removes.len());
        for row in inserts.iter().chain(&updates) {
            call.command.arg(row.key()).arg(row.body());
        }
        for key in removes {
            call.command.arg(key);
        }
        call
    }

    /// The server did not apply the commit; this is what it has.
    fn refused(
        &self,
        request: &CommitRequest,
        version: &[Pair],
        rows: &[Pair],
    ) -> Result<CommitOutcome, TableError> {
        let row = codec::any_version_row(version)?.ok_or_else(|| {
            error(
                TableErrorKind::TableReplaced,
                "the version row that was known is gone",
            )
        })?;
        if request.settle(&row, STORE)? == Settled::Committed {
            return Ok(CommitOutcome::Committed(request.next_token(&[])));
        }
        // Also when the commit is next: then a row exists that must not, or is missing.
        codec::check_rows(&row, rows.len())?;
        let snapshot = Snapshot::new(row.token(&[]), row, merge_rows(rows, &self.cache.rows()));
        self.cache.store(snapshot.clone());
        Ok(CommitOutcome::Conflict(Conflict::new(
            snapshot.version_row.recent.last().cloned(),
            Some(snapshot),
        )))
    }
}
