//! What the tests of this crate share: the server, staging past the contract.
#![allow(
    dead_code,
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

pub mod shell;

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::launch::{How, Kind, Options, Server};
use conformance_tests::proxy::Proxy;
use conformance_tests::{
    Backend, Capability, Checkpoint, Effort, Proxied, Reason, RoundTrips, Stop, child,
};
use membership_azure::{AzureTable, AzureTableConfig};
use membership_core::{ClusterName, MembershipTable, TableError};
use serde_json::{Map, Value};

use shell::{Shell, row_key};

/// Where the killed process finds the server.
pub const URL: &str = "MEMBERSHIP_AZURE_TEST_URL";
/// The account key of every server that the suite runs on.
pub const SECRET: &str = "Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5LXN0YXBsZS1jb3JyZWN0";

/// How long clients wait where something goes wrong on purpose.
pub const IMPATIENT: Duration = Duration::from_secs(2);

/// Fewer rounds for the cases whose length is a number and nothing else: Azurite is one thread of JavaScript that looks through every entity of a
/// table for each query, so that the default efforts would take longer than the share of `cargo xtask test` may on a busy machine. No case is
/// left out and none checks less per round; a soak asks for more than the default, and gets it.
pub fn shorter(effort: &mut Effort) {
    if effort.commits <= Effort::default().commits {
        effort.commits = 600;
    }
}

pub fn open(url: &str, cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, TableError> {
    Ok(Arc::new(AzureTable::open(
        AzureTableConfig::from_url(url)?,
        cluster.clone(),
    )?))
}

/// A table service as the suite wants it: with data that survives a stop, and with a key of its own.
pub struct Store {
    pub server: Server,
}

const YOURS: &[(Capability, Reason)] = &[
    (Capability::Restart, Reason::Managed),
    (Capability::Unavailable, Reason::Managed),
    (Capability::Secret, Reason::Managed),
    (Capability::Hints, Reason::NoHints),
];
const OURS: &[(Capability, Reason)] = &[(Capability::Hints, Reason::NoHints)];

impl Store {
    /// Azurite; one that somebody else runs is taken as it is.
    pub async fn start() -> Self {
        let yours = Kind::Azurite
            .url_variables()
            .iter()
            .any(|name| std::env::var_os(name).is_some());
        let ours = Options {
            durable: true,
            password: Some(SECRET.to_owned()),
            ..Options::default()
        };
        let server = Server::start(Kind::Azurite, if yours { Options::default() } else { ours })
            .await
            .unwrap();
        Self { server }
    }

    pub fn shell(&self, cluster: &ClusterName) -> Shell {
        Shell::of(self.server.url(), cluster)
    }
}

#[async_trait]
impl Backend for Store {
    fn name(&self) -> String {
        "azure-table".to_owned()
    }

    async fn client(&self, cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, TableError> {
        open(self.server.url(), cluster)
    }

    fn not_applicable(&self) -> &'static [(Capability, Reason)] {
        if self.server.how() == How::Yours {
            YOURS
        } else {
            OURS
        }
    }

    async fn put_row(&self, cluster: &ClusterName, row: &str, body: &str) -> Result<(), Stop> {
        let properties = Map::from_iter([("Body".to_owned(), Value::from(body))]);
        self.shell(cluster).merge(&row_key(row), &properties).await
    }

    async fn put_version_row(&self, cluster: &ClusterName, text: &str) -> Result<(), Stop> {
        self.shell(cluster)
            .put("!version", &properties(text)?)
            .await
    }

    async fn drop_version_row(&self, cluster: &ClusterName) -> Result<(), Stop> {
        self.shell(cluster).delete("!version").await
    }

    async fn wipe(&self, cluster: &ClusterName) -> Result<(), Stop> {
        let shell = self.shell(cluster);
        for entity in shell.entities().await? {
            shell.delete(entity["RowKey"].as_str().unwrap()).await?;
        }
        Ok(())
    }

    async fn save(&self, cluster: &ClusterName) -> Result<Checkpoint, Stop> {
        Ok(Box::new(self.shell(cluster).entities().await?))
    }

    async fn restore(&self, cluster: &ClusterName, saved: &Checkpoint) -> Result<(), Stop> {
        let saved = saved
            .downcast_ref::<Vec<Map<String, Value>>>()
            .ok_or_else(|| Stop::failed("another backend's checkpoint"))?;
        self.wipe(cluster).await?;
        let shell = self.shell(cluster);
        for entity in saved {
            shell
                .put(entity["RowKey"].as_str().unwrap(), entity)
                .await?;
        }
        Ok(())
    }

    async fn restart(&self) -> Result<(), Stop> {
        self.set_available(false).await?;
        self.set_available(true).await
    }

    /// It keeps what it was told when it is stopped, and not when it is killed.
    async fn set_available(&self, available: bool) -> Result<(), Stop> {
        if available {
            self.server.start_again().await?
        } else {
            self.server.stop().await?
        }
        Ok(())
    }

    fn secret(&self) -> Result<String, Stop> {
        if self.server.how() == How::Yours {
            Err(Stop::NotStaged(Capability::Secret))
        } else {
            Ok(SECRET.to_owned())
        }
    }

    async fn refused_client(
        &self,
        cluster: &ClusterName,
    ) -> Option<Result<Arc<dyn MembershipTable>, TableError>> {
        Some(open(
            &self.server.url().replace(SECRET, &format!("{SECRET}AAAA")),
            cluster,
        ))
    }

    async fn proxied(&self, cluster: &ClusterName) -> Result<Proxied, Stop> {
        let address = self.server.address();
        let proxy = Proxy::to(address)?;
        let url = self
            .server
            .url()
            .replace(&address.to_string(), &proxy.address().to_string());
        let config = AzureTableConfig::from_url(&url)?
            .operation_timeout(IMPATIENT)
            .connect_timeout(IMPATIENT / 2);
        Ok(Proxied {
            table: Arc::new(AzureTable::open(config, cluster.clone())?),
            proxy,
        })
    }

    /// What the README says.
    fn round_trips(&self) -> RoundTrips {
        let ones = RoundTrips::NONE
            .read(1)
            .read_unchanged(1)
            .read_with_barrier(1)
            .read_row(1)
            .commit(1)
            .update_i_am_alive(1)
            .initialize(1);
        ones.conflict(2).commit_again(2).delete(5)
    }

    /// A row and its heartbeat are two entities, and a page has a thousand.
    fn pages(&self, rows: usize, _bytes: usize) -> u64 {
        (2 * rows as u64 + 2).div_ceil(1_000)
    }

    fn child(&self, cluster: &ClusterName) -> Result<Command, Stop> {
        let mut command = child::this_test("crash_child", cluster)?;
        command.env(URL, self.server.url());
        Ok(command)
    }
}

/// A version row's text as the properties of its entity; whatever is none becomes a property all the same.
fn properties(text: &str) -> Result<Map<String, Value>, Stop> {
    let mut out = Map::new();
    let row: Value = serde_json::from_str(text)?;
    let plain = |value: &Value| {
        Value::from(
            value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned),
        )
    };
    for (name, value) in row.as_object().ok_or_else(|| Stop::failed("no object"))? {
        if let ("recent", Some(records)) = (name.as_str(), value.as_array()) {
            for record in records {
                out.insert(
                    format!("Recent{}", record["version"].as_u64().unwrap_or(0) % 16),
                    record.to_string().into(),
                );
            }
            let last = records.last().map_or_else(
                || Value::from("0".repeat(32)),
                |record| plain(&record["id"]),
            );
            out.insert("Commit".to_owned(), last);
        } else {
            let words = name.split('_').map(|word| {
                word.get(..1).unwrap_or_default().to_uppercase() + word.get(1..).unwrap_or_default()
            });
            out.insert(words.collect(), plain(value));
        }
    }
    Ok(out)
}
