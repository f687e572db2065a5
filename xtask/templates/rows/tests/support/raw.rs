//! A cluster past the provider: what somebody with the store's own shell reads and writes. With the store's client, not with the provider,
//! which must not be able to damage its table.

use async_trait::async_trait;
use conformance_tests::Stop;
use conformance_tests::servers::RawAccess;
use membership_core::ClusterName;

/// Access to one cluster.
pub struct Raw;

impl Raw {
    /// To be written: a client of the store.
    pub async fn open(_url: &str, _cluster: &ClusterName) -> Result<Self, Stop> {
        Ok(Self)
    }
}

#[async_trait]
impl RawAccess for Raw {
    /// Everything of a cluster; the default is nothing.
    type Saved = ();

    async fn put_row(&mut self, _key: &str, _body: &str) -> Result<(), Stop> {
        Err(Stop::failed("`put_row` in tests/support/raw.rs is not written yet: it puts any text under any row key; the version stays"))
    }

    async fn put_version_row(&mut self, _text: &str) -> Result<(), Stop> {
        Err(Stop::failed("`put_version_row` in tests/support/raw.rs is not written yet: it puts any text in the place of the version row"))
    }

    async fn drop_row(&mut self, _key: Option<&str>) -> Result<(), Stop> {
        Err(Stop::failed("`drop_row` in tests/support/raw.rs is not written yet: it takes a row away and leaves its heartbeat, or the version row and leaves the rows"))
    }

    async fn count(&mut self) -> Result<usize, Stop> {
        Err(Stop::failed("`count` in tests/support/raw.rs is not written yet: it counts the records that the store keeps of the cluster"))
    }

    async fn save(&mut self) -> Result<(), Stop> {
        Err(Stop::failed("`save` in tests/support/raw.rs is not written yet: it returns everything of the cluster"))
    }

    async fn restore(&mut self, _saved: &()) -> Result<(), Stop> {
        Err(Stop::failed("`restore` in tests/support/raw.rs is not written yet: it puts what `save` returned in the place of everything"))
    }
}
