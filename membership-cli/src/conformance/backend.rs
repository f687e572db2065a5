//! Clients for the suite, of clusters that did not exist before; at the end of the run none of them
//! may remain.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::process::Command;
use std::str::FromStr;
use std::sync::{Arc, PoisonError};

use async_trait::async_trait;
use conformance_tests::proxy::{Away, Proxy};
use conformance_tests::{Backend, Capability, Proxied, Reason, Stop, child};
use membership::{ConnectError, Connectors};
use membership_core::{
    ClusterName, Durability, Guarantees, MembershipTable, Operation, ReadRequest, Recency,
    TableError, TableErrorKind,
};
use tokio::sync::Mutex;

use super::address::{Address, with_short_timeout};
use crate::exit::{Exit, Failure};

/// A proxy through which the store's own name leads, so that certificates can be checked: a line of
/// /etc/hosts leads the name to `listen`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Through {
    listen: SocketAddr,
    server: SocketAddr,
}

impl FromStr for Through {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let both = text.split_once('=').and_then(|(listen, server)| {
            let (listen, server) = (listen.parse().ok()?, server.parse().ok()?);
            Some(Self { listen, server })
        });
        both.ok_or("write two addresses with their ports, such as 127.0.0.2:443=203.0.113.7:443")
    }
}

/// A store of which only the address is known.
pub(crate) struct Store {
    connectors: Connectors,
    url: String,
    /// Prefix of the services of all clusters of this run.
    service: String,
    /// The prefix that the suite uses, which `service` replaces.
    suite_prefix: String,
    /// The names that this run uses. The suite takes some of them from tables and passes them back.
    own_names: std::sync::Mutex<BTreeSet<ClusterName>>,
    name: &'static str,
    address: Option<Address>,
    /// The only way to the store, if it leads through a proxy.
    proxy: Option<Proxy>,
    not_applicable: &'static [(Capability, Reason)],
    /// Every cluster that the suite asked for; true if this run made it.
    seen: Mutex<BTreeMap<ClusterName, bool>>,
}

/// The suite searches output for the password: a short one could occur by chance.
const MIN_SECRET: usize = 8;
/// How many characters a service may have.
const LONGEST: usize = 150;
/// A user that does not exist.
const UNKNOWN_USER: &str = "membership-conformance-nobody";

impl Store {
    /// Checks that the store answers, through the proxy if there is one, and that the cluster does not
    /// exist.
    pub async fn open(
        connectors: Connectors,
        url: &str,
        cluster: &ClusterName,
        seed: u64,
        through: Option<Through>,
    ) -> Result<Self, Failure> {
        let proxy = through.map(open_proxy).transpose()?;
        let table = connectors.connect(url, cluster.clone()).await?;
        match table.read(&ReadRequest::all()).await {
            Err(error) if error.kind() == TableErrorKind::NotInitialized => {}
            Err(error)
                if matches!(
                    error.kind(),
                    TableErrorKind::Damaged | TableErrorKind::BeingDeleted
                ) =>
            {
                return Err(taken(cluster));
            }
            Ok(_) => return Err(taken(cluster)),
            Err(error) => return Err(error.into()),
        }
        let address = Address::parse(url);
        let goes_through = match (&proxy, &address) {
            (Some(proxy), _) => {
                let url = with_short_timeout(url);
                if !goes_through(&connectors, &url, proxy, cluster).await {
                    return Err(Failure::usage(format!(
                        "the store answers past the proxy at {}: a line of /etc/hosts must lead the name in --table to it, with the same port",
                        proxy.address()
                    )));
                }
                true
            }
            (None, Some(address)) if !address.checks_certificates() => {
                goes_through_its_own(&connectors, address, cluster).await
            }
            _ => false,
        };
        let not_applicable = not_applicable(table.as_ref(), address.as_ref(), goes_through);
        let default = cluster.service() == membership_core::DEFAULT_SERVICE;
        let service = if default {
            cluster.cluster().to_owned()
        } else {
            format!("{}-{}", cluster.service(), cluster.cluster())
        };
        ClusterName::new(service.clone(), "x")?;
        let (seen, own_names) = (Mutex::default(), std::sync::Mutex::default());
        let suite_prefix = format!("conformance-{seed:x}");
        Ok(Self {
            connectors,
            url: url.to_owned(),
            service,
            suite_prefix,
            own_names,
            name: table.store(),
            address,
            proxy,
            not_applicable,
            seen,
        })
    }

    /// This run's name for a cluster of the suite. One-to-one; a name of this run stays as it is. A
    /// service that would be too long loses characters before its last one, with which the suite fills
    /// its longest names.
    fn renamed(
        &self,
        cluster: &ClusterName,
    ) -> Result<ClusterName, membership_core::ParseClusterError> {
        let mut own_names = self
            .own_names
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if own_names.contains(cluster) {
            return Ok(cluster.clone());
        }
        let service = match cluster.service().strip_prefix(&self.suite_prefix) {
            Some(rest) => format!("{}{rest}", self.service),
            None => format!("{}.{}", self.service, cluster.service()),
        };
        let too_many = service.chars().count().saturating_sub(LONGEST);
        let service: String = match service.char_indices().rev().nth(too_many) {
            Some((cut, _)) if too_many > 0 => {
                let last = service.chars().next_back();
                service[..cut].chars().chain(last).collect()
            }
            _ => service,
        };
        let own = ClusterName::new(service, cluster.cluster())?;
        own_names.insert(own.clone());
        Ok(own)
    }

    async fn connect(
        &self,
        url: &str,
        cluster: &ClusterName,
    ) -> Result<Arc<dyn MembershipTable>, TableError> {
        self.connectors
            .connect(url, cluster.clone())
            .await
            .map_err(|error| match error {
                ConnectError::Table(error) => error,
                other => TableError::new(
                    TableErrorKind::Configuration,
                    Operation::Connect,
                    self.name,
                    other.to_string(),
                ),
            })
    }

    /// This run's name for a cluster of the suite; an error if this run did not make it.
    async fn own(&self, cluster: &ClusterName) -> Result<ClusterName, TableError> {
        let fail = |message: String| {
            TableError::new(
                TableErrorKind::Configuration,
                Operation::Connect,
                self.name,
                message,
            )
        };
        let own = self.renamed(cluster).map_err(|e| fail(e.to_string()))?;
        let mut seen = self.seen.lock().await;
        if !seen.contains_key(&own) {
            let table = self.connect(&self.url, &own).await?;
            match table.read(&ReadRequest::all()).await {
                Err(error) if error.kind() == TableErrorKind::NotInitialized => {
                    seen.insert(own.clone(), true)
                }
                Ok(_) => seen.insert(own.clone(), false),
                Err(error) => return Err(error),
            };
        }
        match seen.get(&own) {
            Some(true) => Ok(own),
            _ => Err(fail(format!(
                "cluster {own} exists, and this run did not make it: it is left alone"
            ))),
        }
    }

    /// Removes what is left of this run; gives what could not be removed, with the reason.
    /// `after_all` = every case has cleaned up: then anything left is a fault.
    pub async fn clear(&self, after_all: bool) -> Vec<(String, String)> {
        let seen = std::mem::take(&mut *self.seen.lock().await);
        let mut left = Vec::new();
        for cluster in seen
            .into_iter()
            .filter_map(|(cluster, ours)| ours.then_some(cluster))
        {
            if let Err(why) = self.remove(&cluster, after_all).await {
                left.push((cluster.to_string(), why));
            }
        }
        left
    }

    async fn remove(&self, cluster: &ClusterName, after_all: bool) -> Result<(), String> {
        let table = self
            .connect(&self.url, cluster)
            .await
            .map_err(|e| e.to_string())?;
        let found = match table.read(&ReadRequest::all()).await {
            Err(error) if error.kind() == TableErrorKind::NotInitialized => return Ok(()),
            Err(error) if error.kind() == TableErrorKind::Unavailable => {
                return Err(error.to_string());
            }
            Ok(_) => "it was still there".to_owned(),
            Err(error) => error.to_string(),
        };
        table.delete().await.map_err(|e| e.to_string())?;
        if after_all {
            Err(format!("{found}, and is removed now"))
        } else {
            Ok(())
        }
    }
}

fn taken(cluster: &ClusterName) -> Failure {
    Failure::new(
        Exit::Usage,
        format!(
            "cluster {cluster} exists, and the suite works only in clusters that it makes: give another --cluster, or none"
        ),
    )
}

fn open_proxy(through: Through) -> Result<Proxy, Failure> {
    let Through { listen, server } = through;
    Proxy::on(listen, server).map_err(|e| {
        Failure::new(
            Exit::Failed,
            format!("--proxy cannot listen on {listen}: {e}"),
        )
    })
}

/// The same for a proxy of its own in front of the server.
async fn goes_through_its_own(
    connectors: &Connectors,
    address: &Address,
    cluster: &ClusterName,
) -> bool {
    let through = async {
        let proxy = Proxy::to(address.server().await.ok()?).ok()?;
        let url = address.clone().with_short_timeout().at(proxy.address());
        Some(goes_through(connectors, &url, &proxy, cluster).await)
    };
    through.await.unwrap_or(false)
}

/// Whether a client stays behind a proxy: servers may announce other addresses, to which it would
/// go by itself.
async fn goes_through(
    connectors: &Connectors,
    url: &str,
    proxy: &Proxy,
    cluster: &ClusterName,
) -> bool {
    let through = async {
        let table = connectors.connect(url, cluster.clone()).await.ok()?;
        let read = ReadRequest::all();
        let kind = async || table.read(&read).await.err().map(|e| e.kind());
        if kind().await != Some(TableErrorKind::NotInitialized) {
            return None;
        }
        proxy.set_away(Away::Refused);
        let away = kind().await;
        proxy.heal();
        Some(away == Some(TableErrorKind::Unavailable))
    };
    through.await.unwrap_or(false)
}

/// The capabilities that cannot be tested with an address alone. The list exists as long as the
/// program.
fn not_applicable(
    table: &dyn MembershipTable,
    address: Option<&Address>,
    goes_through_a_proxy: bool,
) -> &'static [(Capability, Reason)] {
    let own = match table.store() {
        "memory" => Reason::InMemory,
        "sqlite" => Reason::NoServer,
        _ => Reason::OnlyAddress,
    };
    let mut list = vec![
        (Capability::RawAccess, Reason::OnlyAddress),
        (Capability::Wipe, Reason::OnlyAddress),
        (Capability::SaveAndRestore, Reason::OnlyAddress),
        (Capability::Restart, own),
        (Capability::Unavailable, own),
        (Capability::Depose, own),
        (Capability::Recreate, own),
        (Capability::Reader, own),
    ];
    if own == Reason::InMemory {
        list.push((Capability::Child, own));
    }
    if !goes_through_a_proxy {
        list.push((Capability::Proxy, Reason::NoProxy));
    }
    if secret(address).is_none() {
        list.push((Capability::Secret, Reason::NoSecret));
    }
    if table.hints().is_none() {
        list.push((Capability::Hints, Reason::NoHints));
    }
    // Known only for the stores of this project.
    if ![
        "azure-table",
        "consul",
        "etcd",
        "memory",
        "sqlite",
        "redis",
        "postgres",
        "mssql",
        "mysql",
        "zookeeper",
    ]
    .contains(&table.store())
    {
        list.push((Capability::RefusesOrphanHeartbeats, Reason::SecondRoundTrip));
    }
    Box::leak(list.into_boxed_slice())
}

/// The client's connections for monitoring have no user. The first commands of all other
/// connections authenticate.
fn is_monitoring_of_mongodb(first: &[u8]) -> bool {
    let says = |word: &[u8]| first.windows(word.len()).any(|part| part == word);
    (says(b"hello") || says(b"isMaster"))
        && !says(b"speculativeAuthenticate")
        && !says(b"saslSupportedMechs")
}

fn secret(address: Option<&Address>) -> Option<String> {
    address
        .and_then(Address::password)
        .filter(|password| password.len() >= MIN_SECRET)
}

#[async_trait]
impl Backend for Store {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    async fn client(&self, cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, TableError> {
        let own = self.own(cluster).await?;
        self.connect(&self.url, &own).await
    }

    fn not_applicable(&self) -> &'static [(Capability, Reason)] {
        self.not_applicable
    }

    /// The store's guarantees are printed; which of them it must have, the operator knows.
    fn required_guarantees(&self) -> Guarantees {
        Guarantees::new(Recency::MonotonicPerClient, Durability::MayBeLost)
    }

    fn secret(&self) -> Result<String, Stop> {
        secret(self.address.as_ref()).ok_or(Stop::NotStaged(Capability::Secret))
    }

    async fn refused_client(
        &self,
        cluster: &ClusterName,
    ) -> Option<Result<Arc<dyn MembershipTable>, TableError>> {
        let address = self.address.as_ref().filter(|one| one.has_users())?;
        let url = address.as_user(UNKNOWN_USER);
        Some(match self.own(cluster).await {
            Ok(own) => self.connect(&url, &own).await,
            Err(error) => Err(error),
        })
    }

    fn child(&self, cluster: &ClusterName) -> Result<Command, Stop> {
        let own = self.renamed(cluster)?;
        let mut command = child::this_program(&["conformance-child"], &own)?;
        // Not as an argument: other users can read the arguments of a process.
        command.env("MEMBERSHIP_TABLE", &self.url);
        Ok(command)
    }

    async fn proxied(&self, cluster: &ClusterName) -> Result<Proxied, Stop> {
        let own = self.own(cluster).await?;
        if let Some(proxy) = self.proxy.clone() {
            let table = self.connect(&with_short_timeout(&self.url), &own).await?;
            return Ok(Proxied { table, proxy });
        }
        let address = self
            .address
            .as_ref()
            .ok_or(Stop::NotStaged(Capability::Proxy))?;
        let proxy = Proxy::to(address.server().await?)?;
        let table = self
            .connect(
                &address.clone().with_short_timeout().at(proxy.address()),
                &own,
            )
            .await?;
        // Without a user all connections begin alike.
        if self.name == "mongodb" && address.password().is_some() {
            proxy.set_monitoring(is_monitoring_of_mongodb);
        }
        Ok(Proxied { table, proxy })
    }
}
