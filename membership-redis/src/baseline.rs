//! Redis's own cheapest write and read, over the table's connection: SET and GET of one key.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use membership_core::{Baseline, Operation, TableError};
use membership_provider::baseline::CONTENT;
use redis::Cmd;

use crate::client::{Answer, Client, Inner, Request};

pub(crate) struct RedisBaseline {
    client: Arc<Client>,
    key: String,
}

impl RedisBaseline {
    pub(crate) fn new(table: &Inner) -> Self {
        Self {
            client: Arc::clone(&table.client),
            key: table.keys.baseline.clone(),
        }
    }

    async fn run(
        &self,
        operation: Operation,
        command: &str,
        writes: bool,
    ) -> Result<Answer, TableError> {
        let mut command: Cmd = redis::cmd(command);
        command.arg(&self.key);
        if operation == Operation::UpdateIAmAlive {
            command.arg(CONTENT);
        }
        let request = Request {
            writes,
            confirmed: writes,
            ..Request::read(operation, command)
        };
        self.client.run(&request).await
    }
}

impl fmt::Debug for RedisBaseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBaseline")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Baseline for RedisBaseline {
    fn write_is(&self) -> &'static str {
        "SET of one key"
    }

    fn read_is(&self) -> &'static str {
        "GET of one key"
    }

    async fn write(&self) -> Result<(), TableError> {
        let during = Operation::UpdateIAmAlive;
        let answer = self.run(during, "SET", true).await?;
        self.client
            .check_confirmed(&answer, "the master has written it")
            .map_err(|e| e.during(during))
    }

    async fn read(&self) -> Result<(), TableError> {
        self.run(Operation::ReadRow, "GET", false).await.map(drop)
    }

    async fn remove(&self) -> Result<(), TableError> {
        self.run(Operation::Delete, "UNLINK", true).await.map(drop)
    }
}
