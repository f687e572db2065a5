//! A session with the servers: connections, TLS, and everything of the driver's own that would send something twice turned off.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use membership_core::{TableError, TableErrorKind};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use scylla::client::PoolSize;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::policies::load_balancing::DefaultPolicy;
use scylla::policies::retry::FallthroughRetryPolicy;

use crate::config::{CassandraConfig, wrong};
use crate::error::{error, not_connected};

/// A connection is looked after this often, so that nobody between here and there forgets it. One that leads nowhere is found out by asking.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// # Errors
/// `Configuration`, `PermissionDenied`, `Unavailable`.
pub(crate) async fn dial(config: &CassandraConfig) -> Result<Arc<Session>, TableError> {
    if let Some(session) = config.session() {
        return Ok(Arc::clone(session));
    }
    let profile = profile(config);
    let mut builder = SessionBuilder::new()
        .known_nodes(config.nodes())
        .connection_timeout(config.connecting())
        .hostname_resolution_timeout(Some(config.connecting()))
        .metadata_request_clientside_timeout(config.timeout())
        .pool_size(PoolSize::PerHost(NonZeroUsize::MIN))
        .keepalive_interval(KEEP_ALIVE)
        .keepalive_timeout(config.timeout())
        .keyspaces_to_fetch([config.keyspace()])
        .auto_await_schema_agreement(false)
        .driver_config_reporting(false)
        .default_execution_profile_handle(profile.into_handle());
    if let Some((user, password)) = config.user() {
        builder = builder.user(user, password);
    }
    if config.uses_tls() {
        builder = builder.tls_context(Some(Arc::new(tls(config)?)));
    }
    builder
        .build()
        .await
        .map(Arc::new)
        .map_err(|e| not_connected(&e, &config.at(), config.uses_tls()))
}

/// How the table's own requests are sent, whoever made the session.
pub(crate) fn profile(config: &CassandraConfig) -> ExecutionProfile {
    let mut routing = DefaultPolicy::builder().token_aware(true);
    if let Some(datacenter) = config.named_datacenter() {
        routing = routing
            .prefer_datacenter(datacenter.to_owned())
            .permit_dc_failover(false);
    }
    let (serial, quorum) = config.consistency();
    ExecutionProfile::builder()
        .load_balancing_policy(routing.build())
        .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
        .speculative_execution_policy(None)
        // The table bounds each request itself.
        .request_timeout(None)
        .consistency(quorum)
        .serial_consistency(Some(serial))
        .build()
}

fn tls(config: &CassandraConfig) -> Result<rustls::ClientConfig, TableError> {
    // Whoever was first has chosen; what matters is that somebody has, or rustls panics.
    let _chosen = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let [ca, certificate, key] = config.tls_files();
    let mut roots = rustls::RootCertStore::empty();
    match ca {
        Some(path) => {
            let bad = |e: &dyn std::fmt::Display| wrong(format!("tls_ca {}: {e}", path.display()));
            for one in CertificateDer::pem_file_iter(path).map_err(|e| bad(&e))? {
                roots.add(one.map_err(|e| bad(&e))?).map_err(|e| bad(&e))?;
            }
            if roots.is_empty() {
                return Err(bad(&"no certificate is in it"));
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                return Err(wrong(
                    "this machine trusts no authority: name one with tls_ca",
                ));
            }
        }
    }
    let builder = rustls::ClientConfig::builder().with_root_certificates(roots);
    let (Some(certificate), Some(key)) = (certificate, key) else {
        return Ok(builder.with_no_client_auth());
    };
    let bad = |name: &str, path: &std::path::Path, e: &dyn std::fmt::Display| {
        wrong(format!("{name} {}: {e}", path.display()))
    };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| bad("tls_cert", certificate, &e))?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|e| bad("tls_key", key, &e))?;
    builder.with_client_auth_cert(chain, secret).map_err(|e| {
        error(
            TableErrorKind::Configuration,
            format!("tls_cert and tls_key: {e}"),
        )
    })
}
