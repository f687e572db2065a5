//! ZooKeeper's own cheapest write and read, over the table's session: `setData` and `getData` of
//! one znode.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use membership_core::{Baseline, TableError};
use membership_provider::baseline::CONTENT;
use zookeeper_client::Error;

use crate::client::Inner;
use crate::error::failed;

pub(crate) struct ZkBaseline(pub(crate) Arc<Inner>);

impl fmt::Debug for ZkBaseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkBaseline").finish_non_exhaustive()
    }
}

#[async_trait]
impl Baseline for ZkBaseline {
    fn write_is(&self) -> &'static str {
        "setData of one znode"
    }

    fn read_is(&self) -> &'static str {
        "getData of one znode"
    }

    async fn write(&self) -> Result<(), TableError> {
        let session = self.0.client.session().await?;
        let path = self.0.paths.baseline();
        match session.set(&path, CONTENT.as_bytes(), None).await? {
            Err(Error::NoNode) => {}
            other => return other.map_err(failed),
        }
        for path in self.0.paths.above().into_iter().chain([path.as_str()]) {
            match session.create(path, CONTENT.as_bytes()).await? {
                Ok(()) | Err(Error::NodeExists) => {}
                Err(e) => return Err(failed(e)),
            }
        }
        Ok(())
    }

    async fn read(&self) -> Result<(), TableError> {
        let session = self.0.client.session().await?;
        let path = self.0.paths.baseline();
        let answer = session.answer(session.driver().get_data(&path)).await;
        match answer.map_err(TableError::of_a_read)? {
            Ok(_) | Err(Error::NoNode) => Ok(()),
            Err(e) => Err(failed(e).of_a_read()),
        }
    }

    async fn remove(&self) -> Result<(), TableError> {
        let session = self.0.client.session().await?;
        let path = self.0.paths.baseline();
        match session.answer(session.driver().delete(&path, None)).await? {
            Ok(()) | Err(Error::NoNode) => Ok(()),
            Err(e) => Err(failed(e)),
        }
    }
}
