//! What a provider gives the suite: clients, and the situations that its store can stage.

use std::any::Any;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;
use membership_core::{
    ClusterName, DocumentStore, Durability, Guarantees, MembershipTable, Recency, TableError,
};

use crate::capability::{Capability, Reason};
use crate::documents::{DocumentAccess, SavedDocument};
use crate::environment;
use crate::proxy::Proxy;
use crate::raw::RawAccess;
use crate::round_trips::RoundTrips;
use crate::stop::Stop;

/// A separate client, and the proxy that all its connections go through.
#[derive(Debug)]
pub struct Proxied {
    /// The client.
    pub table: Arc<dyn MembershipTable>,
    /// The proxy. No other client's connections go through it, where the store allows that. Links
    /// between servers may.
    pub proxy: Proxy,
}

/// A client whose connections all lead to the server that led when it was made, whoever leads now.
#[derive(Debug)]
pub struct Pinned {
    /// The client.
    pub table: Arc<dyn MembershipTable>,
    /// The proxy of the client alone, and for each of its addresses the server that it stands for.
    /// None if the client found the leader by itself, and stays until it learns of another one.
    pub way: Option<(Proxy, Vec<(SocketAddr, SocketAddr)>)>,
}

impl Pinned {
    /// From now on new connections lead to the servers that the client asks for.
    pub fn release(&self) {
        if let Some((proxy, servers)) = &self.way {
            for (address, server) in servers {
                proxy.set_target_of(*address, *server);
            }
        }
    }
}

/// A saved cluster. Only the backend knows its content.
pub type Checkpoint = Box<dyn Any + Send + Sync>;

/// Reads are linearizable, and no acknowledged commit is lost.
pub(crate) const STRONGEST: Guarantees = Guarantees::new(Recency::Linearizable, Durability::Kept);

/// A store under test.
///
/// Only [`name`](Self::name) and [`client`](Self::client) are required. Every other function stages
/// a situation. A backend that cannot stage one lists it in
/// [`not_applicable`](Self::not_applicable), with a reason; otherwise the cases that need it fail.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// The store's name in the report.
    fn name(&self) -> String;

    /// A new client of this cluster, independent of all others: it shares nothing with them but the
    /// store.
    ///
    /// # Errors
    /// A requested store that cannot be reached is a failure, not a reason to skip.
    async fn client(&self, cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, TableError>;

    /// What cannot apply to this store, and why.
    fn not_applicable(&self) -> &[(Capability, Reason)] {
        &[]
    }

    /// The guarantees that the store must have as it is set up here. A client whose
    /// [`guarantees`](MembershipTable::guarantees) are weaker fails the case
    /// `the_store_guarantees_what_it_must`; cases that test only what is not required are not
    /// applicable. By default the strongest guarantees.
    fn required_guarantees(&self) -> Guarantees {
        STRONGEST
    }

    /// For a table over one document: its store, past the table. A backend that returns it has
    /// staged [`Capability::RawAccess`], [`Capability::Wipe`] and [`Capability::SaveAndRestore`],
    /// and need not implement the next eight functions.
    ///
    /// # Errors
    /// As [`client`](Self::client).
    async fn documents(
        &self,
        _cluster: &ClusterName,
    ) -> Result<Option<Box<dyn DocumentStore>>, TableError> {
        Ok(None)
    }

    /// Writes any text under any row key; the version stays. Needs [`Capability::RawAccess`], as do
    /// the next four.
    async fn put_row(&self, cluster: &ClusterName, key: &str, body: &str) -> Result<(), Stop> {
        let documents = self.documents(cluster).await?;
        document(documents, Capability::RawAccess)?
            .put_row(key, body)
            .await
    }

    /// Replaces the version row by any text.
    async fn put_version_row(&self, cluster: &ClusterName, text: &str) -> Result<(), Stop> {
        let documents = self.documents(cluster).await?;
        document(documents, Capability::RawAccess)?
            .put_version_row(text)
            .await
    }

    /// Removes a row and keeps its heartbeat, unless the store holds one inside the other; the
    /// version stays.
    async fn drop_row(&self, cluster: &ClusterName, key: &str) -> Result<(), Stop> {
        let documents = self.documents(cluster).await?;
        document(documents, Capability::RawAccess)?
            .drop_row(Some(key))
            .await
    }

    /// Removes the version row and keeps the rows.
    async fn drop_version_row(&self, cluster: &ClusterName) -> Result<(), Stop> {
        let documents = self.documents(cluster).await?;
        document(documents, Capability::RawAccess)?
            .drop_row(None)
            .await
    }

    /// How many records the store keeps of this cluster, whether the provider would show them or
    /// not: rows, heartbeats, the version row, and whatever else there is. Zero if it keeps nothing.
    async fn count(&self, cluster: &ClusterName) -> Result<usize, Stop> {
        let documents = self.documents(cluster).await?;
        document(documents, Capability::RawAccess)?.count().await
    }

    /// Removes everything of a cluster, like somebody with the store's own shell.
    async fn wipe(&self, cluster: &ClusterName) -> Result<(), Stop> {
        let documents = self.documents(cluster).await?;
        document(documents, Capability::Wipe)?
            .restore(&SavedDocument::default())
            .await
    }

    /// Makes the store anew, empty and without any cluster, as somebody does who deletes its bucket,
    /// database or disk, and returns when it answers. What counts revisions, versions or times of
    /// the store then begins again where it began. Needs [`Capability::Recreate`].
    async fn recreate(&self) -> Result<(), Stop> {
        Err(Stop::NotStaged(Capability::Recreate))
    }

    /// A backup of a cluster.
    async fn save(&self, cluster: &ClusterName) -> Result<Checkpoint, Stop> {
        let documents = self.documents(cluster).await?;
        let saved = document(documents, Capability::SaveAndRestore)?
            .save()
            .await?;
        Ok(Box::new(saved))
    }

    /// Restores a backup of this cluster, whatever happened since.
    async fn restore(&self, cluster: &ClusterName, saved: &Checkpoint) -> Result<(), Stop> {
        let documents = self.documents(cluster).await?;
        document(documents, Capability::SaveAndRestore)?
            .restore(checkpoint(saved)?)
            .await
    }

    /// Kills the server as a crash does (SIGKILL), starts it again on its data, and returns when it
    /// answers.
    async fn restart(&self) -> Result<(), Stop> {
        Err(Stop::NotStaged(Capability::Restart))
    }

    /// The same for the one server that leads this cluster, while clients are busy: the leader of
    /// several, the primary, the owner of the cluster's keys. For a store with one server this is
    /// [`restart`](Self::restart), and need not be written.
    ///
    /// Kills the server that leads at the time of the call; another one may take over, or not.
    /// Returns when the killed server takes part again, so that the next kill does not meet a store
    /// with one server less. Clients need not be served by then: the suite waits for that.
    ///
    /// If the table's guarantees say that a failover may lose acknowledged commits, let the killed
    /// server lead again: the suite requires that nothing is lost.
    async fn kill_leader(&self, _cluster: &ClusterName) -> Result<(), Stop> {
        self.restart().await
    }

    /// Freezes the server that leads this cluster, with all its connections (SIGSTOP), and returns
    /// when another one leads. Needs [`Capability::Depose`], as do the next three.
    ///
    /// The commits that were acknowledged before the call must survive it if no client commits
    /// meanwhile, also where a failover may lose commits.
    async fn depose(&self, _cluster: &ClusterName) -> Result<(), Stop> {
        Err(Stop::NotStaged(Capability::Depose))
    }

    /// Continues the frozen server, and returns at once: what it answers before it learns of its
    /// successor is what the suite looks at. Does nothing if none is frozen.
    async fn thaw(&self, _cluster: &ClusterName) -> Result<(), Stop> {
        Err(Stop::NotStaged(Capability::Depose))
    }

    /// Returns when the server that was frozen takes part again, and could lead.
    async fn rejoined(&self, _cluster: &ClusterName) -> Result<(), Stop> {
        Err(Stop::NotStaged(Capability::Depose))
    }

    /// A new client that stays with the server that leads now.
    async fn pinned(&self, _cluster: &ClusterName) -> Result<Pinned, Stop> {
        Err(Stop::NotStaged(Capability::Depose))
    }

    /// Makes the store unreachable for existing and new clients, or reachable again.
    async fn set_available(&self, _available: bool) -> Result<(), Stop> {
        Err(Stop::NotStaged(Capability::Unavailable))
    }

    /// A new client of this cluster, whose user may read it and not write. Needs
    /// [`Capability::Reader`]. The cluster has a table.
    async fn reader(&self, _cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, Stop> {
        Err(Stop::NotStaged(Capability::Reader))
    }

    /// The secret with which every client of this backend connects. The suite searches for it in
    /// everything that clients and errors show, and in every log line, at any level, of new clients
    /// on a separate thread with its own runtime. Lines that crates write through `log` are
    /// included, unless the process has set a logger. State that clients share is created
    /// beforehand, by one more call of [`client`](Self::client).
    fn secret(&self) -> Result<String, Stop> {
        Err(Stop::NotStaged(Capability::Secret))
    }

    /// A client whose connection carries the [`secret`](Self::secret) and is refused, now or at the
    /// first operation. Without one the suite searches only the errors of good connections.
    async fn refused_client(
        &self,
        _cluster: &ClusterName,
    ) -> Option<Result<Arc<dyn MembershipTable>, TableError>> {
        None
    }

    /// A new client whose connections all go through a new proxy. Needs [`Capability::Proxy`].
    ///
    /// Give it the shortest timeouts with which the store can be used (a second or two for an
    /// operation): several cases wait for them. If each client has a new proxy, some cases inject
    /// faults for several clients at the same time. If servers announce their addresses to clients,
    /// see [`Proxy`]. All clients may then share one proxy: no other client sends requests during a
    /// fault or a count, and links between servers do not matter.
    async fn proxied(&self, _cluster: &ClusterName) -> Result<Proxied, Stop> {
        Err(Stop::NotStaged(Capability::Proxy))
    }

    /// The round trips that the provider's documentation promises. The case `round_trips` counts
    /// them, and fails if the two differ.
    fn round_trips(&self) -> RoundTrips {
        RoundTrips::NONE
    }

    /// The number of pages into which the store divides an answer with so many rows of so many
    /// bytes each: the round trips of a full read if nothing changes. By default one.
    fn pages(&self, _rows: usize, _bytes: usize) -> u64 {
        1
    }

    /// The command line that runs one case again with the same random choices; a failure prints it.
    /// By default the command of the running cargo test.
    fn replay_command(&self, seed: u64, case: &str) -> String {
        environment::replay(seed, case)
    }

    /// The command of a process that runs [`child::run`](crate::child::run) for this cluster; see
    /// there.
    fn child(&self, _cluster: &ClusterName) -> Result<Command, Stop> {
        Err(Stop::NotStaged(Capability::Child))
    }
}

/// Access to the document of a table over one document; otherwise a situation that the backend does
/// not stage.
fn document(
    documents: Option<Box<dyn DocumentStore>>,
    needed: Capability,
) -> Result<DocumentAccess, Stop> {
    documents
        .map(DocumentAccess::from)
        .ok_or(Stop::NotStaged(needed))
}

/// A checkpoint, as the type that the backend saved.
pub(crate) fn checkpoint<T: Any>(saved: &Checkpoint) -> Result<&T, Stop> {
    saved
        .downcast_ref()
        .ok_or_else(|| Stop::failed("the checkpoint is another backend's"))
}
