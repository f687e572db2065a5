//! What a provider gives the suite: clients, and as much staging as its store allows.

use std::any::Any;
use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;
use membership_core::{ClusterName, DocumentStore, MembershipTable, TableError};

use crate::capability::{Capability, Reason};
use crate::documents::{DocumentAccess, SavedDocument};
use crate::environment;
use crate::proxy::Proxy;
use crate::raw::RawAccess;
use crate::round_trips::RoundTrips;
use crate::stop::Stop;

/// A client of its own, and the proxy that all its connections go through.
#[derive(Debug)]
pub struct Proxied {
    /// The client.
    pub table: Arc<dyn MembershipTable>,
    /// The proxy; no other client's connections go through it, where the store allows that. Links between servers may.
    pub proxy: Proxy,
}

/// A saved cluster; what is in it only the backend knows.
pub type Checkpoint = Box<dyn Any + Send + Sync>;

/// A store under test.
///
/// Only [`name`](Self::name) and [`client`](Self::client) must be written. Everything else stages what goes wrong in real life; what a
/// backend leaves out it lists in [`not_applicable`](Self::not_applicable), with a reason, or the cases that need it fail.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// What the report calls it.
    fn name(&self) -> String;

    /// A new client of this cluster, independent of all others: its own connection, nothing shared but the store.
    ///
    /// # Errors
    /// A store that was asked for and cannot be reached is a failure, not a reason to skip.
    async fn client(&self, cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, TableError>;

    /// What cannot apply to this store, and why.
    fn not_applicable(&self) -> &[(Capability, Reason)] {
        &[]
    }

    /// For a table over one document: its store, past the table. With it [`Capability::RawAccess`], [`Capability::Wipe`] and
    /// [`Capability::SaveAndRestore`] are staged already, and the next six functions need not be written.
    ///
    /// # Errors
    /// As [`client`](Self::client).
    async fn documents(
        &self,
        _cluster: &ClusterName,
    ) -> Result<Option<Box<dyn DocumentStore>>, TableError> {
        Ok(None)
    }

    /// Puts any text under any row key; the version stays. Needs [`Capability::RawAccess`], as do the next two.
    async fn put_row(&self, cluster: &ClusterName, key: &str, body: &str) -> Result<(), Stop> {
        let documents = self.documents(cluster).await?;
        document(documents, Capability::RawAccess)?
            .put_row(key, body)
            .await
    }

    /// Puts any text in the place of the version row.
    async fn put_version_row(&self, cluster: &ClusterName, text: &str) -> Result<(), Stop> {
        let documents = self.documents(cluster).await?;
        document(documents, Capability::RawAccess)?
            .put_version_row(text)
            .await
    }

    /// Takes the version row away and leaves the rows.
    async fn drop_version_row(&self, cluster: &ClusterName) -> Result<(), Stop> {
        let documents = self.documents(cluster).await?;
        document(documents, Capability::RawAccess)?
            .drop_version_row()
            .await
    }

    /// Removes everything of a cluster, as somebody with the store's own shell would.
    async fn wipe(&self, cluster: &ClusterName) -> Result<(), Stop> {
        let documents = self.documents(cluster).await?;
        document(documents, Capability::Wipe)?
            .restore(&SavedDocument::default())
            .await
    }

    /// A backup of a cluster.
    async fn save(&self, cluster: &ClusterName) -> Result<Checkpoint, Stop> {
        let documents = self.documents(cluster).await?;
        let saved = document(documents, Capability::SaveAndRestore)?
            .save()
            .await?;
        Ok(Box::new(saved))
    }

    /// Brings a backup of this cluster back, whatever happened since.
    async fn restore(&self, cluster: &ClusterName, saved: &Checkpoint) -> Result<(), Stop> {
        let documents = self.documents(cluster).await?;
        document(documents, Capability::SaveAndRestore)?
            .restore(checkpoint(saved)?)
            .await
    }

    /// Kills the server as a crash would (SIGKILL), starts it again on the data it had, and returns when it answers.
    async fn restart(&self) -> Result<(), Stop> {
        Err(Stop::NotStaged(Capability::Restart))
    }

    /// The same to the one server that has the say over this cluster, while clients are busy: the leader of several, the primary, the
    /// owner of the cluster's keys. Of a store that is one server this is [`restart`](Self::restart), and need not be written.
    ///
    /// Whatever leads when it is called is killed; others may take over, or not. Returns when the killed one takes part again, so that
    /// the next kill does not meet a store that is one server short. Clients need not be served by then: the suite waits for that.
    ///
    /// Where the table's guarantees say that a failover may lose acknowledged commits, let the killed server lead again: the suite asks
    /// that nothing is lost.
    async fn kill_leader(&self, _cluster: &ClusterName) -> Result<(), Stop> {
        self.restart().await
    }

    /// Takes the store away for clients that exist and that come, or brings it back.
    async fn set_available(&self, _available: bool) -> Result<(), Stop> {
        Err(Stop::NotStaged(Capability::Unavailable))
    }

    /// The secret that every client of this backend connects with. What clients and errors show is searched for it, and every log line,
    /// at whatever level, of new clients on a thread and a runtime of their own; what crates say through `log`, too, unless the process
    /// has set a logger. What clients share is made before that, by one more call of [`client`](Self::client).
    fn secret(&self) -> Result<String, Stop> {
        Err(Stop::NotStaged(Capability::Secret))
    }

    /// A client whose connection carries the [`secret`](Self::secret) and is refused, now or at the first operation. Without one only
    /// the errors of good connections are searched.
    async fn refused_client(
        &self,
        _cluster: &ClusterName,
    ) -> Option<Result<Arc<dyn MembershipTable>, TableError>> {
        None
    }

    /// A new client all of whose connections go through a new proxy. Needs [`Capability::Proxy`].
    ///
    /// Give it the shortest time-outs that the store can be used with (a second or two for an operation): several cases wait for them.
    /// With a new proxy for each client, some cases have things go wrong with several clients side by side. Where servers tell clients
    /// where they are, see [`Proxy`]; where all clients then go through the same proxy, that is fine as well, because then no other client
    /// asks anything while something goes wrong or is counted. What servers say to each other through it does not matter.
    async fn proxied(&self, _cluster: &ClusterName) -> Result<Proxied, Stop> {
        Err(Stop::NotStaged(Capability::Proxy))
    }

    /// The round trips that the provider's documentation promises. Counted by the case `round_trips`, which fails where they differ.
    fn round_trips(&self) -> RoundTrips {
        RoundTrips::NONE
    }

    /// Into how many pages the store divides an answer with so many rows of so many bytes each: the round trips that reading all of them
    /// takes where nothing changes. By default one.
    fn pages(&self, _rows: usize, _bytes: usize) -> u64 {
        1
    }

    /// The command line that runs one case again with the same random choices; printed where it fails. By default that of the test of
    /// cargo's that is running.
    fn replay_command(&self, seed: u64, case: &str) -> String {
        environment::replay(seed, case)
    }

    /// The command of a process that runs [`child::run`](crate::child::run) for this cluster; see there.
    fn child(&self, _cluster: &ClusterName) -> Result<Command, Stop> {
        Err(Stop::NotStaged(Capability::Child))
    }
}

/// Access to a document, where there is one; else what the backend does not stage.
fn document(
    documents: Option<Box<dyn DocumentStore>>,
    needed: Capability,
) -> Result<DocumentAccess, Stop> {
    documents
        .map(DocumentAccess::from)
        .ok_or(Stop::NotStaged(needed))
}

/// What a backend has saved, as the type that it has saved.
pub(crate) fn checkpoint<T: Any>(saved: &Checkpoint) -> Result<&T, Stop> {
    saved
        .downcast_ref()
        .ok_or_else(|| Stop::failed("a checkpoint of another backend"))
}
