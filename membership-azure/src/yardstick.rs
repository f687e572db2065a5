//! The service's own cheapest write and read, over the table's connections: one entity, by its keys.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use membership_core::{Operation, TableError, TableErrorKind, Yardstick};

use crate::batch::Properties;
use crate::error::error;
use crate::link::{Link, Single};

/// A partition of its own: no cluster's name is without `~-`.
const PARTITION: &str = "yardstick";
const ROW: &str = "yardstick";

pub(crate) struct AzureYardstick {
    link: Arc<Link>,
}

impl AzureYardstick {
    pub(crate) const fn new(link: Arc<Link>) -> Self {
        Self { link }
    }
}

impl fmt::Debug for AzureYardstick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AzureYardstick")
            .field("place", &self.link.shown())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Yardstick for AzureYardstick {
    fn write_is(&self) -> &'static str {
        "Insert Or Merge of one entity"
    }

    fn read_is(&self) -> &'static str {
        "Get of one entity"
    }

    async fn write(&self) -> Result<(), TableError> {
        // As much as a small row.
        let properties = Properties::from_iter([("Body".to_owned(), "x".repeat(100).into())]);
        let during = Operation::UpdateIAmAlive;
        match self
            .link
            .merge(self.link.deadline(), PARTITION, ROW, &properties, None)
            .await
            .map_err(|e| e.during(during))?
        {
            Single::Done(_) => Ok(()),
            _ => {
                Err(error(TableErrorKind::NotInitialized, "there is no such table").during(during))
            }
        }
    }

    async fn read(&self) -> Result<(), TableError> {
        self.link
            .get(self.link.deadline(), PARTITION, ROW)
            .await
            .map(drop)
            .map_err(|e| e.during(Operation::ReadRow))
    }

    async fn remove(&self) -> Result<(), TableError> {
        self.link
            .remove(self.link.deadline(), PARTITION, ROW, "*")
            .await
            .map(drop)
            .map_err(|e| e.during(Operation::Delete))
    }
}
