//! `initialize` and `delete`: one script each. Clauses T1, T12.

use membership_core::{InitializeRequest, Operation, TableError, TableErrorKind};
use redis::Value;

use crate::client::{Inner, Request};
use crate::codec;
use crate::error::{error, unexpected_after_write};
use crate::scripts::SCRIPTS;

impl Inner {
    /// # Errors
    /// As [`MembershipTable::initialize`](membership_core::MembershipTable::initialize).
    pub(crate) async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        let keys = &self.keys;
        let mut call = Request::script(
            Operation::Initialize,
            &SCRIPTS.initialize,
            &[&keys.version, &keys.rows, &keys.heartbeats, &keys.cell],
            true,
        );
        call.confirmed = true;
        let row = request.version_row();
        for (field, value) in codec::initial(&row) {
            call.command.arg(field).arg(value);
        }
        let answer = self.client.run(&call).await?;
        let confirmed = self.client.check_confirmed(&answer, "the table is created");
        match codec::parts::<2>(answer.value) {
            Ok((0, [version, rows])) => {
                let version = codec::pairs(version);
                codec::version_row(&version, None, codec::number(&rows), None)?;
            }
            Ok((1, _)) => {
                confirmed?;
                tracing::info!(cluster = %self.cluster, table_id = %request.table_id, "membership table created");
            }
            Ok((2, [key, _])) => {
                let e = codec::rows_without_version();
                return Err(codec::text(key).into_iter().fold(e, TableError::with_key));
            }
            Ok((_, [other, _])) | Err(other) => return Err(unexpected_after_write(&other)),
        }
        self.warn_of_eviction().await;
        Ok(())
    }

    /// One script, so no client sees a half-deleted cluster.
    ///
    /// # Errors
    /// As [`MembershipTable::delete`](membership_core::MembershipTable::delete).
    pub(crate) async fn delete(&self) -> Result<(), TableError> {
        let keys = &self.keys;
        let mut call = Request::script(
            Operation::Delete,
            &SCRIPTS.delete,
            &[&keys.version, &keys.rows, &keys.heartbeats, &keys.cell],
            true,
        );
        call.confirmed = true;
        let answer = self.client.run(&call).await?;
        let confirmed = self.client.check_confirmed(&answer, "the table is deleted");
        match answer.value {
            Value::Int(1) => {
                confirmed?;
                tracing::info!(cluster = %self.cluster, "membership table deleted");
                Ok(())
            }
            other => match codec::parts::<1>(other) {
                Ok((0, [version])) => {
                    codec::any_version_row(&codec::pairs(version))?;
                    let message = "the version row was changed at the same time";
                    Err(error(TableErrorKind::Busy, message))
                }
                Ok((_, [other])) | Err(other) => Err(unexpected_after_write(&other)),
            },
        }
    }

    /// Logs a warning where a full server evicts keys.
    async fn warn_of_eviction(&self) {
        let mut command = redis::cmd("INFO");
        command.arg("memory");
        let request = Request::read(Operation::Initialize, command);
        // A user who may not ask gets no warning.
        let Ok(answer) = self.client.run(&request).await else {
            return;
        };
        let text = codec::text(answer.value).unwrap_or_default();
        let policy = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("maxmemory_policy:"));
        if let Some(policy) = policy.filter(|policy| policy.starts_with("allkeys")) {
            tracing::warn!(
                cluster = %self.cluster, policy,
                "this Redis evicts any key when its memory is full, also the membership table: set maxmemory-policy to noeviction"
            );
        }
    }
}
