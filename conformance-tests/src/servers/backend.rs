//! The backend of the suite over the servers of a store.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use membership_core::{
    ClusterName, Durability, Guarantees, MembershipTable, NextStep, ReadRequest, TableError,
    TableErrorKind,
};

use super::store::{Servers, Store};
use super::url::with_options;
use crate::backend::{Backend, Checkpoint, Pinned, Proxied, checkpoint};
use crate::capability::{Capability, Reason};
use crate::child;
use crate::helpers::until;
use crate::proxy::Proxy;
use crate::raw::RawAccess;
use crate::round_trips::RoundTrips;
use crate::stop::Stop;

/// The addresses of a proxy, each with the server that it stands for.
type Fronts = Vec<(SocketAddr, SocketAddr)>;

/// The environment variable with the servers' URL, for the process that the suite kills.
const CHILD_URL: &str = "MEMBERSHIP_CONFORMANCE_CHILD_URL";
/// The test that runs in that process. It calls [`crash_child`].
const CHILD_TEST: &str = "crash_child";

/// How long a store may take until a new user can read.
const READER: Duration = Duration::from_secs(30);

/// What is not staged if somebody else runs the servers.
const EXTERNAL: [(Capability, Reason); 5] = [
    (Capability::Restart, Reason::Managed),
    (Capability::Unavailable, Reason::Managed),
    (Capability::Depose, Reason::Managed),
    (Capability::Recreate, Reason::Managed),
    (Capability::Reader, Reason::Managed),
];

/// The servers of a store as the suite's backend.
pub struct ServerBackend<S> {
    store: S,
    name: String,
    servers: Box<dyn Servers>,
    options: String,
    secret: Option<String>,
    required: Guarantees,
    not_applicable: Vec<(Capability, Reason)>,
}

impl<S: Store> ServerBackend<S> {
    /// A backend of this store on these servers, with its name in the report.
    pub fn new(name: impl Into<String>, store: S, servers: impl Servers) -> Self {
        let mut not_applicable = store.not_applicable().to_vec();
        not_applicable.push((Capability::Secret, Reason::NoSecret));
        if !servers.have_successors() {
            not_applicable.push((Capability::Depose, Reason::OneServer));
        }
        if !servers.can_be_emptied() {
            not_applicable.push((Capability::Recreate, Reason::NotMadeAnew));
        }
        let is_one = servers.addresses().len() == 1 && !servers.have_successors();
        if !S::MAKES_READERS || !is_one {
            not_applicable.push((Capability::Reader, Reason::NoReader));
        }
        let mut required = store.required_guarantees();
        if servers.is_external() {
            not_applicable.extend(EXTERNAL);
            // How it is set up is not known.
            required.durability = Durability::MayBeLost;
            // Clients are led through the proxy by its address in place of the server's.
            let url = servers.url();
            let by_address = |server: &SocketAddr| url.contains(&server.to_string());
            if !store.proxies_external() || !servers.addresses().iter().all(by_address) {
                not_applicable.push((Capability::Proxy, Reason::NoProxy));
            }
        }
        Self {
            required,
            store,
            name: name.into(),
            servers: Box::new(servers),
            options: String::new(),
            secret: None,
            not_applicable,
        }
    }

    /// Changes the name in the report.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the secret of every client: a part of the servers' URL. The secret of an external
    /// server is not known.
    #[must_use]
    pub fn secret(mut self, secret: impl Into<String>) -> Self {
        if !self.servers.is_external() {
            self.secret = Some(secret.into());
            self.not_applicable
                .retain(|(capability, _)| *capability != Capability::Secret);
        }
        self
    }

    /// Adds these options to the URL of every client: `a=b&c=d`.
    #[must_use]
    pub fn options(mut self, options: impl Into<String>) -> Self {
        self.options = options.into();
        self
    }

    /// Sets the guarantees that the store must have with these options and on these servers.
    #[must_use]
    pub fn requires(mut self, guarantees: Guarantees) -> Self {
        self.required = guarantees;
        self
    }

    /// Adds capabilities that do not apply to the store with these options or on these servers.
    #[must_use]
    pub fn without(mut self, capability: Capability, reason: Reason) -> Self {
        self.not_applicable.push((capability, reason));
        self
    }

    /// The URL by which clients connect.
    #[must_use]
    pub fn url(&self) -> String {
        with_options(&self.servers.url(), &self.options)
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The servers.
    pub fn servers(&self) -> &dyn Servers {
        &*self.servers
    }

    /// Whether a capability can be staged.
    fn stages(&self, capability: Capability) -> Result<(), Stop> {
        match self.not_applicable().iter().any(|(c, _)| *c == capability) {
            true => Err(Stop::NotStaged(capability)),
            false => Ok(()),
        }
    }

    /// A new proxy in front of all servers, the URL that leads through it, and which of its
    /// addresses stands for which server.
    fn own_proxy(&self, mut url: String) -> Result<(Proxy, String, Fronts), Stop> {
        let all = self.servers.addresses();
        let mut any = SocketAddr::from(([127, 0, 0, 1], 0));
        let proxy = Proxy::on(any, None)?;
        let one_port = have_one_port(&all);
        if one_port {
            any.set_port(proxy.address().port());
        }
        let mut servers = Vec::new();
        for (n, server) in all.into_iter().enumerate() {
            if one_port {
                any.set_ip(server.ip());
            }
            let address = match n {
                0 => proxy.address(),
                _ => proxy.also(any, None)?,
            };
            proxy.set_target_of(address, server);
            url = url.replace(&server.to_string(), &address.to_string());
            servers.push((address, server));
        }
        Ok((proxy, url, servers))
    }

    /// Waits until new clients can read: several servers may answer before they serve.
    async fn serves(&self) -> Result<(), Stop> {
        let cluster: ClusterName = "nobody/serves".parse()?;
        let url = with_options(&self.url(), self.store.short_timeouts());
        until("the servers serve clients", async || {
            let Ok(table) = self.store.connect(&url, &cluster).await else {
                return false;
            };
            let mut read = ReadRequest::all();
            read.barrier = true;
            let answer = table.read(&read).await;
            matches!(answer, Err(e) if e.kind() == TableErrorKind::NotInitialized)
        })
        .await;
        Ok(())
    }
}

#[async_trait]
impl<S: Store> Backend for ServerBackend<S> {
    fn name(&self) -> String {
        self.name.clone()
    }

    async fn client(&self, cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, TableError> {
        self.store.connect(&self.url(), cluster).await
    }

    fn not_applicable(&self) -> &[(Capability, Reason)] {
        &self.not_applicable
    }

    fn required_guarantees(&self) -> Guarantees {
        self.required
    }

    async fn put_row(&self, cluster: &ClusterName, key: &str, body: &str) -> Result<(), Stop> {
        S::raw(self, cluster).await?.put_row(key, body).await
    }

    async fn put_version_row(&self, cluster: &ClusterName, text: &str) -> Result<(), Stop> {
        S::raw(self, cluster).await?.put_version_row(text).await
    }

    async fn drop_row(&self, cluster: &ClusterName, key: &str) -> Result<(), Stop> {
        S::raw(self, cluster).await?.drop_row(Some(key)).await
    }

    async fn drop_version_row(&self, cluster: &ClusterName) -> Result<(), Stop> {
        S::raw(self, cluster).await?.drop_row(None).await
    }

    async fn count(&self, cluster: &ClusterName) -> Result<usize, Stop> {
        S::raw(self, cluster).await?.count().await
    }

    async fn wipe(&self, cluster: &ClusterName) -> Result<(), Stop> {
        S::raw(self, cluster)
            .await?
            .restore(&Default::default())
            .await
    }

    async fn recreate(&self) -> Result<(), Stop> {
        self.stages(Capability::Recreate)?;
        self.servers.empty().await
    }

    async fn save(&self, cluster: &ClusterName) -> Result<Checkpoint, Stop> {
        Ok(Box::new(S::raw(self, cluster).await?.save().await?))
    }

    async fn restore(&self, cluster: &ClusterName, saved: &Checkpoint) -> Result<(), Stop> {
        S::raw(self, cluster)
            .await?
            .restore(checkpoint(saved)?)
            .await
    }

    async fn restart(&self) -> Result<(), Stop> {
        self.stages(Capability::Restart)?;
        self.set_available(false).await?;
        self.set_available(true).await
    }

    async fn kill_leader(&self, cluster: &ClusterName) -> Result<(), Stop> {
        self.stages(Capability::Restart)?;
        self.servers.kill_leader(cluster).await
    }

    async fn depose(&self, cluster: &ClusterName) -> Result<(), Stop> {
        self.stages(Capability::Depose)?;
        self.servers.depose(cluster).await
    }

    async fn thaw(&self, _: &ClusterName) -> Result<(), Stop> {
        self.servers.thaw().await
    }

    async fn rejoined(&self, _: &ClusterName) -> Result<(), Stop> {
        self.servers.rejoined().await
    }

    /// All addresses of the URL lead to the leader. Where servers announce addresses, the client
    /// has asked for the leader, and is connected to it.
    async fn pinned(&self, cluster: &ClusterName) -> Result<Pinned, Stop> {
        self.stages(Capability::Depose)?;
        if self.servers.advertised_proxy().is_some() {
            let table = self.store.connect(&self.url(), cluster).await?;
            return Ok(Pinned { table, way: None });
        }
        let leader = self.servers.leader(cluster).await?;
        let (proxy, url, servers) = self.own_proxy(self.url())?;
        for (address, _) in &servers {
            proxy.set_target_of(*address, leader);
        }
        let table = self.store.connect(&url, cluster).await?;
        Ok(Pinned {
            table,
            way: Some((proxy, servers)),
        })
    }

    async fn set_available(&self, available: bool) -> Result<(), Stop> {
        self.stages(Capability::Unavailable)?;
        self.servers.set_running(available).await?;
        if available && self.servers.addresses().len() > 1 {
            self.serves().await?;
        }
        Ok(())
    }

    async fn reader(&self, cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, Stop> {
        self.stages(Capability::Reader)?;
        let url = S::reader(self).await?;
        // Grants may take a moment to be known.
        let deadline = Instant::now() + READER;
        loop {
            let denied = match self.store.connect(&url, cluster).await {
                Ok(table) => match table.read(&ReadRequest::all()).await {
                    Ok(_) => return Ok(table),
                    Err(e) => e,
                },
                Err(e) => e,
            };
            if Instant::now() > deadline {
                return Err(denied.into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn secret(&self) -> Result<String, Stop> {
        self.stages(Capability::Secret)?;
        self.secret
            .clone()
            .ok_or(Stop::NotStaged(Capability::Secret))
    }

    async fn refused_client(
        &self,
        cluster: &ClusterName,
    ) -> Option<Result<Arc<dyn MembershipTable>, TableError>> {
        let secret = self.secret.as_ref()?;
        let url = self.store.refused(&self.url(), secret);
        Some(self.store.connect(&url, cluster).await)
    }

    async fn proxied(&self, cluster: &ClusterName) -> Result<Proxied, Stop> {
        self.stages(Capability::Proxy)?;
        let url = with_options(&self.url(), self.store.short_timeouts());
        let (proxy, url) = match self.servers.advertised_proxy() {
            Some(proxy) => (proxy, url),
            None => {
                let (proxy, url, _) = self.own_proxy(url)?;
                (proxy, url)
            }
        };
        if let Some(is_monitoring) = self.store.monitoring() {
            proxy.set_monitoring(is_monitoring);
        }
        Ok(Proxied {
            table: self.store.connect(&url, cluster).await?,
            proxy,
        })
    }

    fn round_trips(&self) -> RoundTrips {
        self.store.round_trips()
    }

    fn pages(&self, rows: usize, bytes: usize) -> u64 {
        self.store.pages(rows, bytes)
    }

    fn child(&self, cluster: &ClusterName) -> Result<Command, Stop> {
        let mut command = child::this_test(CHILD_TEST, cluster)?;
        command.env(CHILD_URL, self.url());
        Ok(command)
    }
}

/// Whether servers have one port and differ in their addresses. Then they tell clients the addresses
/// alone, and proxies must have one port, too.
pub(crate) fn have_one_port(servers: &[SocketAddr]) -> bool {
    let mut ports = servers.iter().map(SocketAddr::port);
    let first = ports.next();
    servers.len() > 1 && ports.all(|port| Some(port) == first)
}

/// The process that the suite kills in the middle of its commits: the whole body of a test
/// `crash_child` beside the test that runs the suite. Does nothing unless it runs in that process.
///
/// # Panics
/// If the process cannot connect within a minute.
#[allow(clippy::panic, reason = "the body of a test")]
pub async fn crash_child(store: &impl Store) {
    let (Some(cluster), Ok(url)) = (child::cluster(), std::env::var(CHILD_URL)) else {
        return;
    };
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    let table = loop {
        match store.connect(&url, &cluster).await {
            Ok(table) => break table,
            // Connecting has its own timeout, which may expire on a busy machine.
            Err(e)
                if e.next_step() == NextStep::Retry && tokio::time::Instant::now() < deadline => {}
            Err(e) => panic!("{e}"),
        }
    };
    child::run(&*table).await;
}
