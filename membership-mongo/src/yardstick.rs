//! MongoDB's own cheapest write and read, over the table's client: an update and a find of one small document.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use membership_core::{Operation, TableError, Yardstick};

use crate::commands::{Concern, Place};
use crate::link::Link;

/// As much as a small row.
const CONTENT: &str = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";

pub(crate) struct MongoYardstick {
    link: Arc<Link>,
    place: Place,
    concern: Concern,
}

impl MongoYardstick {
    pub(crate) const fn new(link: Arc<Link>, place: Place, concern: Concern) -> Self {
        Self {
            link,
            place,
            concern,
        }
    }
}

impl fmt::Debug for MongoYardstick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MongoYardstick")
            .field("document", &self.place.yardstick)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Yardstick for MongoYardstick {
    fn write_is(&self) -> &'static str {
        "update of one small document, confirmed by a majority"
    }

    fn read_is(&self) -> &'static str {
        "find of one small document, as recent as the table's reads"
    }

    async fn write(&self) -> Result<(), TableError> {
        let during = Operation::UpdateIAmAlive;
        let written = self
            .link
            .write(self.place.yardstick_write(CONTENT), during)
            .await?;
        written.failed.map_or(Ok(()), |(_, refusal)| {
            Err(self.link.refused(refusal, during))
        })
    }

    async fn read(&self) -> Result<(), TableError> {
        self.link
            .read(self.place.yardstick_read(self.concern), Operation::ReadRow)
            .await
            .map(drop)
    }

    async fn remove(&self) -> Result<(), TableError> {
        let during = Operation::Delete;
        let written = self
            .link
            .write(self.place.yardstick_remove(), during)
            .await?;
        written.failed.map_or(Ok(()), |(_, refusal)| {
            Err(self.link.refused(refusal, during))
        })
    }
}
