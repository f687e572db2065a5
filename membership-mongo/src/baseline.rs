//! MongoDB's own cheapest write and read, over the table's client: one small document.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use membership_core::{Baseline, Operation, TableError};
use membership_provider::baseline::CONTENT;
use mongodb::bson::Document;

use crate::client::Inner;

pub(crate) struct MongoBaseline(pub(crate) Arc<Inner>);

impl MongoBaseline {
    async fn write(&self, during: Operation, command: Document) -> Result<(), TableError> {
        let write = async { self.0.write(command).await?.checked().map(drop) };
        self.0.run(during, write).await
    }
}

impl fmt::Debug for MongoBaseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MongoBaseline").finish_non_exhaustive()
    }
}

#[async_trait]
impl Baseline for MongoBaseline {
    fn write_is(&self) -> &'static str {
        "update of one small document, confirmed by a majority"
    }

    fn read_is(&self) -> &'static str {
        "find of one small document, as recent as the table's reads"
    }

    async fn write(&self) -> Result<(), TableError> {
        let command = self.0.commands.baseline_write(CONTENT);
        self.write(Operation::UpdateIAmAlive, command).await
    }

    async fn read(&self) -> Result<(), TableError> {
        let inner = &self.0;
        let read = inner.find_with(false, |concern| inner.commands.baseline_read(concern));
        inner.run(Operation::ReadRow, read).await.map(drop)
    }

    async fn remove(&self) -> Result<(), TableError> {
        let command = self.0.commands.baseline_remove();
        self.write(Operation::Delete, command).await
    }
}
