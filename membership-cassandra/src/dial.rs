//! The nodes, and a session with one of them: those that the configuration names, and those that the
//! last session knew. Clause T13.

use std::num::NonZeroUsize;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use membership_core::{TableError, TableErrorKind};
use membership_provider::{Credentials, first_of};
use scylla::client::PoolSize;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::cluster::Node;
use scylla::policies::load_balancing::{
    DefaultPolicy, NodeIdentifier, SingleTargetLoadBalancingPolicy,
};
use scylla::policies::retry::FallthroughRetryPolicy;

use crate::STORE;
use crate::client::{Client, Connection};
use crate::config::CassandraConfig;
use crate::error::{error, not_connected};

/// The interval of keep-alive messages, and the longest time until one is answered. A node that falls
/// silent and keeps its connections open loses them after both, and requests go to the others.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
const ALIVE: Duration = Duration::from_secs(2);
/// How many nodes of a lost session are tried, if no named one answers.
const MAX_KNOWN: usize = 16;

impl Client {
    /// A session with one of the nodes that the configuration names, or else with one of those that
    /// the last session knew. If the last answer is in doubt, only the former count. A node that is
    /// silent leaves the next one its turn.
    pub(crate) async fn dial(&self, in_doubt: bool) -> Result<Arc<Session>, TableError> {
        if let Some(session) = &self.config.session {
            return Ok(Arc::clone(session));
        }
        let mut nodes: Vec<_> = self.config.nodes.iter().map(ToString::to_string).collect();
        if !in_doubt {
            let known = self.known_nodes();
            nodes.extend(
                known
                    .into_iter()
                    .filter(|node| !nodes.contains(node))
                    .collect::<Vec<_>>(),
            );
        }
        let attempts: Vec<_> = nodes
            .into_iter()
            .map(|node| connect(&self.config, node))
            .collect();
        let ends = |e: &TableError| e.kind() != TableErrorKind::Unavailable;
        match first_of(attempts, ends).await {
            Some(session) => session,
            None => Err(error(
                TableErrorKind::Configuration,
                "there is no node to connect to",
            )),
        }
    }

    /// The nodes of the last session, also of one that is silent.
    fn known_nodes(&self) -> Vec<String> {
        if let Some(connection) = &*self.current() {
            self.keep_nodes(connection);
        }
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Keeps the addresses of a session's nodes for the next one.
    pub(crate) fn keep_nodes(&self, connection: &Connection) {
        let nodes = self.nodes(connection).into_iter().take(MAX_KNOWN);
        let nodes: Vec<_> = nodes.map(|node| node.address.to_string()).collect();
        if !nodes.is_empty() {
            *self.known.lock().unwrap_or_else(PoisonError::into_inner) = nodes;
        }
    }

    /// Whether the session has another node than one whose connection broke, which may still count
    /// as connected. Then that is no reason to open another session.
    pub(crate) fn has_others(&self, connection: &Connection) -> bool {
        let nodes = self.nodes(connection).into_iter();
        nodes.filter(|node| node.is_connected()).count() > 1
    }

    /// How to send a request to one node only.
    pub(crate) fn profile_of(&self, node: Arc<Node>) -> ExecutionProfile {
        let only = SingleTargetLoadBalancingPolicy::new(NodeIdentifier::Node(node), None);
        let profile = profile(&self.config).to_builder();
        profile.load_balancing_policy(only).build()
    }

    /// The nodes that the configuration allows.
    pub(crate) fn nodes(&self, connection: &Connection) -> Vec<Arc<Node>> {
        let datacenter = self.config.datacenter.as_deref();
        let allowed = |node: &&Arc<Node>| {
            datacenter.is_none_or(|name| node.datacenter.as_deref() == Some(name))
        };
        let state = connection.session.get_cluster_state();
        state
            .get_nodes_info()
            .iter()
            .filter(allowed)
            .cloned()
            .collect()
    }
}

/// Opens a session. All features of the driver that send a request twice are off.
///
/// # Errors
/// `Configuration`, `PermissionDenied`, `Unavailable`.
async fn connect(config: &CassandraConfig, node: String) -> Result<Arc<Session>, TableError> {
    let connect_timeout = config.timeouts.connect();
    let mut builder = SessionBuilder::new()
        .known_node(node)
        .connection_timeout(connect_timeout)
        .hostname_resolution_timeout(Some(connect_timeout))
        .metadata_request_clientside_timeout(config.timeouts.operation())
        .pool_size(PoolSize::PerHost(NonZeroUsize::MIN))
        .keepalive_interval(KEEP_ALIVE)
        .keepalive_timeout(config.timeouts.operation().min(ALIVE))
        .keyspaces_to_fetch([&config.keyspace])
        .auto_await_schema_agreement(false)
        .driver_config_reporting(false)
        .default_execution_profile_handle(profile(config).into_handle());
    if let Some(Credentials { user, password }) = &config.credentials {
        builder = builder.user(user, password);
    }
    if config.tls {
        builder = builder.tls_context(Some(Arc::new(config.tls_files.client_config(STORE)?)));
    }
    let session = builder.build().await.map(Arc::new);
    session.map_err(|e| not_connected(&e, &config.endpoint(), config.tls))
}

/// How to send the table's own requests, also in a session of the application.
pub(crate) fn profile(config: &CassandraConfig) -> ExecutionProfile {
    let mut routing = DefaultPolicy::builder().token_aware(true);
    if let Some(datacenter) = &config.datacenter {
        routing = routing
            .prefer_datacenter(datacenter.clone())
            .permit_dc_failover(false);
    }
    let (serial, quorum) = config.consistency();
    ExecutionProfile::builder()
        .load_balancing_policy(routing.build())
        .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
        .speculative_execution_policy(None)
        // Each request has a deadline of the table's own.
        .request_timeout(None)
        .consistency(quorum)
        .serial_consistency(Some(serial))
        .build()
}
