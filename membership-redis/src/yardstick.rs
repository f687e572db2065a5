//! Redis's own cheapest write and read, over the table's connection: SET and GET of one key.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use membership_core::{Operation, TableError, TableErrorKind, Yardstick};
use redis::Cmd;

use crate::error::error;
use crate::link::{Answer, Link, Request};

/// As much as a small row.
const CONTENT: [u8; 100] = [b'x'; 100];

pub(crate) struct RedisYardstick {
    link: Arc<Link>,
    key: String,
}

impl RedisYardstick {
    pub(crate) const fn new(link: Arc<Link>, key: String) -> Self {
        Self { link, key }
    }

    async fn run(
        &self,
        command: Cmd,
        operation: Operation,
        writes: bool,
    ) -> Result<Answer, TableError> {
        self.link
            .run(&Request {
                operation,
                command,
                script: None,
                writes,
                confirmed: writes,
            })
            .await
    }
}

impl fmt::Debug for RedisYardstick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisYardstick")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Yardstick for RedisYardstick {
    fn write_is(&self) -> &'static str {
        "SET of one key"
    }

    fn read_is(&self) -> &'static str {
        "GET of one key"
    }

    async fn write(&self) -> Result<(), TableError> {
        let mut command = redis::cmd("SET");
        command.arg(&self.key).arg(&CONTENT);
        let answer = self.run(command, Operation::UpdateIAmAlive, true).await?;
        match answer.replicas {
            Some(replicas) if replicas < self.link.replicas() => Err(error(
                TableErrorKind::OutcomeUnknown,
                format!("only {replicas} replicas have confirmed it"),
            )
            .during(Operation::UpdateIAmAlive)),
            _ => Ok(()),
        }
    }

    async fn read(&self) -> Result<(), TableError> {
        let mut command = redis::cmd("GET");
        command.arg(&self.key);
        self.run(command, Operation::ReadRow, false).await.map(drop)
    }

    async fn remove(&self) -> Result<(), TableError> {
        let mut command = redis::cmd("UNLINK");
        command.arg(&self.key);
        self.run(command, Operation::Delete, true).await.map(drop)
    }
}
