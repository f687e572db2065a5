//! Access to the znodes of a cluster with ZooKeeper's own shell, without the provider.

use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::Stop;
use conformance_tests::servers::RawAccess;
use membership_core::{ClusterName, ConnectionString};
use zookeeper_client::{Acls, Client, CreateMode, Error, TlsOptions};

/// Znodes with their content, parents first.
pub type Saved = Vec<(String, Vec<u8>)>;

pub struct Shell {
    pub client: Client,
    acls: Acls<'static>,
}

/// The path of a cluster.
pub fn znode(cluster: &ClusterName) -> String {
    format!("/membership/{}", cluster.store_key())
}

impl Shell {
    /// With the login of the URL.
    pub async fn open(url: &str) -> Result<Self, Stop> {
        let _chosen = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let url = ConnectionString::parse("zookeeper", &["zk"], url)?;
        let mut connector = Client::connector().with_session_timeout(Duration::from_secs(10));
        let mut acls = Acls::anyone_all();
        if let (Some(user), Some(password)) = (&url.user, &url.password) {
            connector = connector.with_auth("digest", format!("{user}:{password}").as_bytes());
            acls = Acls::creator_all();
        }
        let servers = url.addresses(2181).join(",");
        let client = match url.options.iter().find(|option| option.name() == "tls_ca") {
            Some(ca) => {
                let tls = TlsOptions::new().with_pem_ca(&std::fs::read_to_string(ca.text())?)?;
                connector.with_tls(tls).secure_connect(&servers).await?
            }
            None => connector.connect(&servers).await?,
        };
        Ok(Self { client, acls })
    }

    /// Replaces the content of a znode, or creates it.
    pub async fn put(&self, path: &str, content: &[u8]) -> Result<(), Stop> {
        match self.client.set_data(path, content, None).await {
            Err(Error::NoNode) => Ok(self
                .client
                .create(path, content, &CreateMode::Persistent.with_acls(self.acls))
                .await
                .map(drop)?),
            other => Ok(other.map(drop)?),
        }
    }

    /// Everything from this path on, parents first.
    async fn below(&self, path: &str) -> Result<Vec<String>, Stop> {
        let (mut all, mut next) = (vec![path.to_owned()], 0);
        while let Some(path) = all.get(next).cloned() {
            match self.client.list_children(&path).await {
                Ok(children) => all.extend(children.iter().map(|child| format!("{path}/{child}"))),
                Err(Error::NoNode) => {}
                Err(e) => return Err(e.into()),
            }
            next += 1;
        }
        Ok(all)
    }

    pub async fn remove(&self, path: &str) -> Result<(), Stop> {
        for path in self.below(path).await?.iter().rev() {
            match self.client.delete(path, None).await {
                Ok(()) | Err(Error::NoNode) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    pub async fn save(&self, path: &str) -> Result<Saved, Stop> {
        // As of one moment, unless znodes are added or removed meanwhile.
        let paths = self.below(path).await?;
        let mut reader = self.client.new_multi_reader();
        for path in &paths {
            reader.add_get_data(path)?;
        }
        let mut saved = Saved::new();
        for (path, answer) in paths.into_iter().zip(reader.commit().await?) {
            if let zookeeper_client::MultiReadResult::Data { data, .. } = answer {
                saved.push((path, data));
            }
        }
        Ok(saved)
    }

    pub async fn restore(&self, saved: &Saved) -> Result<(), Stop> {
        for (path, content) in saved {
            self.client
                .create(path, content, &CreateMode::Persistent.with_acls(self.acls))
                .await?;
        }
        Ok(())
    }
}

/// The znodes of a cluster.
pub struct Raw {
    shell: Shell,
    znode: String,
    /// Every server by itself, if there are several.
    each: Vec<String>,
}

impl Raw {
    pub async fn open(
        url: &str,
        servers: &[SocketAddr],
        cluster: &ClusterName,
    ) -> Result<Self, Stop> {
        let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
        let alone = |server: &String| url.replace(&servers.join(","), server);
        let each = match servers.len() {
            1 => Vec::new(),
            _ => servers.iter().map(alone).collect(),
        };
        Ok(Self {
            shell: Shell::open(url).await?,
            znode: znode(cluster),
            each,
        })
    }

    /// Waits until every server shows the staged change: a read without a barrier need not be newer
    /// than that.
    async fn is_everywhere(&self) -> Result<(), Stop> {
        for url in &self.each {
            Shell::open(url).await?.client.sync("/").await?;
        }
        Ok(())
    }
}

#[async_trait]
impl RawAccess for Raw {
    type Saved = Saved;

    async fn put_row(&mut self, row: &str, body: &str) -> Result<(), Stop> {
        let path = format!("{}/{row}", self.znode);
        self.shell.put(&path, body.as_bytes()).await?;
        self.is_everywhere().await
    }

    async fn put_version_row(&mut self, text: &str) -> Result<(), Stop> {
        self.shell.put(&self.znode, text.as_bytes()).await?;
        self.is_everywhere().await
    }

    async fn drop_row(&mut self, row: Option<&str>) -> Result<(), Stop> {
        let Some(row) = row else {
            return self.put_version_row("").await;
        };
        let path = format!("{}/{row}", self.znode);
        self.shell.remove(&path).await?;
        self.is_everywhere().await
    }

    async fn count(&mut self) -> Result<usize, Stop> {
        Ok(self.save().await?.len())
    }

    async fn save(&mut self) -> Result<Saved, Stop> {
        self.shell.save(&self.znode).await
    }

    async fn restore(&mut self, saved: &Saved) -> Result<(), Stop> {
        self.shell.remove(&self.znode).await?;
        self.shell.restore(saved).await?;
        self.is_everywhere().await
    }
}
