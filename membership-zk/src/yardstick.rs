//! ZooKeeper's own cheapest write and read, over the table's session: `setData` and `getData` of one znode.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use membership_core::{TableError, Yardstick};
use zookeeper_client::Error;

use crate::error::failed;
use crate::link::Link;
use crate::place::Place;

/// As much as a small row.
const CONTENT: [u8; 100] = [b'x'; 100];

pub(crate) struct ZkYardstick {
    link: Arc<Link>,
    place: Place,
}

impl ZkYardstick {
    pub(crate) const fn new(link: Arc<Link>, place: Place) -> Self {
        Self { link, place }
    }
}

impl fmt::Debug for ZkYardstick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkYardstick")
            .field("znode", &self.place.yardstick())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Yardstick for ZkYardstick {
    fn write_is(&self) -> &'static str {
        "setData of one znode"
    }

    fn read_is(&self) -> &'static str {
        "getData of one znode"
    }

    async fn write(&self) -> Result<(), TableError> {
        let deadline = self.link.deadline();
        let session = self.link.session(deadline).await?;
        let path = self.place.yardstick();
        let sent = session.client.set_data(&path, &CONTENT, None);
        match self.link.answer(&session, deadline, sent).await? {
            Err(Error::NoNode) => {}
            other => return other.map(drop).map_err(failed),
        }
        for path in self.place.above().into_iter().chain([path.as_str()]) {
            let sent = session
                .client
                .create(path, &CONTENT, &self.link.persistent());
            match self.link.answer(&session, deadline, sent).await?.map(drop) {
                Ok(()) | Err(Error::NodeExists) => {}
                Err(e) => return Err(failed(e)),
            }
        }
        Ok(())
    }

    async fn read(&self) -> Result<(), TableError> {
        let deadline = self.link.deadline();
        let session = self.link.session(deadline).await?;
        let sent = session.client.get_data(&self.place.yardstick());
        match self
            .link
            .answer(&session, deadline, sent)
            .await
            .map_err(TableError::of_a_read)?
        {
            Ok(_) | Err(Error::NoNode) => Ok(()),
            Err(e) => Err(failed(e).of_a_read()),
        }
    }

    async fn remove(&self) -> Result<(), TableError> {
        let deadline = self.link.deadline();
        let session = self.link.session(deadline).await?;
        let sent = session.client.delete(&self.place.yardstick(), None);
        match self.link.answer(&session, deadline, sent).await? {
            Ok(()) | Err(Error::NoNode) => Ok(()),
            Err(e) => Err(failed(e)),
        }
    }
}
