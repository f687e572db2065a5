//! Access to the keys of a cluster, without the provider.

use async_trait::async_trait;
use conformance_tests::Stop;
use conformance_tests::servers::{RawAccess, ServerBackend, VersionRowFields};
use membership_core::{ClusterName, ConnectionString};
use redis::aio::MultiplexedConnection;

use super::{KEYS, Redis, key, nodes, raw};

/// An administrator's connection to the server that has a cluster's keys.
pub struct Raw {
    connection: MultiplexedConnection,
    cluster: ClusterName,
}

impl Raw {
    pub async fn open(backend: &ServerBackend<Redis>, cluster: &ClusterName) -> Result<Self, Stop> {
        let servers = backend.servers();
        let connection = match servers.url().split_once("://") {
            Some(("redis+cluster", _)) => {
                let addresses = servers.addresses();
                let owner = nodes::owner(&addresses, &key(cluster, "version")).await;
                raw(&format!("redis://{owner}")).await?
            }
            _ => administrator(backend).await?,
        };
        let cluster = cluster.clone();
        Ok(Self {
            connection,
            cluster,
        })
    }
}

/// A connection to the only server, or the master, as a user that may do everything.
pub async fn administrator(backend: &ServerBackend<Redis>) -> Result<MultiplexedConnection, Stop> {
    let servers = backend.servers();
    let url = servers.url();
    Ok(match url.split_once("://") {
        Some(("rediss", _)) => encrypted(&backend.url(), &url).await?,
        Some(("redis+sentinel", _)) => raw(&format!("redis://{}", servers.addresses()[0])).await?,
        _ => raw(&url).await?,
    })
}

/// A connection that trusts the authority in the URL of clients.
async fn encrypted(clients: &str, server: &str) -> Result<MultiplexedConnection, Stop> {
    let _chosen = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let options = ConnectionString::parse("test", &["rediss"], clients)?.options;
    let ca = options.iter().find(|option| option.name() == "tls_ca");
    let ca = ca.ok_or_else(|| Stop::failed("the URL names no authority"))?;
    let certificates = redis::TlsCertificates {
        client_tls: None,
        root_cert: Some(std::fs::read(ca.text())?),
    };
    Ok(redis::Client::build_with_tls(server, certificates)?
        .get_multiplexed_async_connection()
        .await?)
}

#[async_trait]
impl RawAccess for Raw {
    type Saved = Vec<(&'static str, Option<Vec<u8>>)>;

    async fn put_row(&mut self, row: &str, body: &str) -> Result<(), Stop> {
        let rows = key(&self.cluster, "rows");
        let mut put = redis::cmd("HSET");
        put.arg(rows).arg(row).arg(body);
        Ok(put.exec_async(&mut self.connection).await?)
    }

    /// Fields that a version row does not have nevertheless become fields of the hash.
    async fn put_version_row(&mut self, text: &str) -> Result<(), Stop> {
        let mut row = VersionRowFields::parse(text)?;
        let mut fields: Vec<(String, String)> = row
            .recent()
            .map(|(place, record)| (format!("recent:{place}"), record))
            .collect();
        if row.has_recent() {
            fields.push(("commit".to_owned(), row.last_commit()));
        }
        let deleting = row.take("deleting");
        fields.extend(deleting.map(|_| ("deleting".to_owned(), "1".to_owned())));
        fields.extend(row.rest().map(|(name, text)| (name.to_owned(), text)));
        let mut all = redis::pipe();
        let at = key(&self.cluster, "version");
        all.atomic().cmd("DEL").arg(&at);
        for (field, value) in fields {
            all.cmd("HSET").arg(&at).arg(field).arg(value);
        }
        Ok(all.exec_async(&mut self.connection).await?)
    }

    async fn drop_row(&mut self, row: Option<&str>) -> Result<(), Stop> {
        let mut delete = redis::cmd(row.map_or("DEL", |_| "HDEL"));
        let hash = row.map_or("version", |_| "rows");
        delete.arg(key(&self.cluster, hash)).arg(row);
        Ok(delete.exec_async(&mut self.connection).await?)
    }

    async fn count(&mut self) -> Result<usize, Stop> {
        let mut all = redis::pipe();
        for what in KEYS {
            let size = if what == "cell" { "EXISTS" } else { "HLEN" };
            all.cmd(size).arg(key(&self.cluster, what));
        }
        let fields: Vec<usize> = all.query_async(&mut self.connection).await?;
        Ok(fields.into_iter().sum())
    }

    async fn save(&mut self) -> Result<Self::Saved, Stop> {
        let mut all = redis::pipe();
        all.atomic();
        for what in KEYS {
            all.cmd("DUMP").arg(key(&self.cluster, what));
        }
        let dumps: Vec<Option<Vec<u8>>> = all.query_async(&mut self.connection).await?;
        Ok(KEYS.into_iter().zip(dumps).collect())
    }

    async fn restore(&mut self, saved: &Self::Saved) -> Result<(), Stop> {
        let mut all = redis::pipe();
        all.atomic();
        for what in KEYS {
            all.cmd("DEL").arg(key(&self.cluster, what));
        }
        for (what, dump) in saved {
            if let Some(dump) = dump {
                let at = key(&self.cluster, what);
                all.cmd("RESTORE").arg(at).arg(0).arg(&dump[..]);
            }
        }
        Ok(all.exec_async(&mut self.connection).await?)
    }
}
