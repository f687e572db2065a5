//! What the tests of this crate share: servers, staging past the contract, entries, commits.
#![allow(
    dead_code,
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use std::collections::HashMap;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::types::{AttributeValue, DeleteRequest, PutRequest, WriteRequest};
use conformance_tests::launch::{How, Kind, Options, Server};
use conformance_tests::proxy::Proxy;
use conformance_tests::{
    Backend, Capability, Checkpoint, Effort, Proxied, Reason, RoundTrips, Stop, child,
};
use membership_core::{ClusterName, ConnectionString, MembershipTable, TableError};
use membership_dynamo::{DynamoConfig, DynamoTable};

/// Where the killed process finds the server.
pub const URL: &str = "MEMBERSHIP_DYNAMODB_TEST_URL";
/// What clients of the suite's own server sign with.
pub const SECRET: &str = "correct-horse-battery-staple";
/// How long clients wait where something goes wrong on purpose.
const IMPATIENT: Duration = Duration::from_secs(2);

/// The same in a soak, whose tables have pages that a busy DynamoDB Local needs seconds for: as long as users wait who set nothing.
fn impatient(config: DynamoConfig) -> DynamoConfig {
    if std::env::var_os("MEMBERSHIP_CONFORMANCE_EFFORT").is_some() {
        config
    } else {
        config.operation_timeout(IMPATIENT)
    }
}

pub type Item = HashMap<String, AttributeValue>;

/// Fewer rounds for the cases whose length is a number and nothing else: DynamoDB Local is a Java program that signs, parses and keeps every
/// request by itself, so that the default efforts would take longer than the share of `cargo xtask test` may. No case is left out and none
/// checks less per round; a soak asks for more than the default, and gets it.
pub fn shorter(effort: &mut Effort) {
    if effort.commits <= Effort::default().commits {
        effort.model_operations = 1_000;
        effort.commits = 400;
        effort.kills = 40;
    }
}

pub async fn open(
    url: &str,
    cluster: &ClusterName,
) -> Result<Arc<dyn MembershipTable>, TableError> {
    Ok(Arc::new(
        DynamoTable::connect(DynamoConfig::from_url(url)?, cluster.clone()).await?,
    ))
}

/// A client of the store itself, and the table's name: what somebody with the store's own tools has.
pub fn shell(url: &str) -> (Client, String) {
    let parts = ConnectionString::parse("test", &["dynamodb"], url).unwrap();
    let keys = Credentials::new(
        parts.user.unwrap_or_default(),
        parts.password.unwrap_or_default(),
        None,
        None,
        "test",
    );
    let region = parts
        .hosts
        .first()
        .map_or_else(|| "us-east-1".to_owned(), |(region, _)| region.clone());
    let mut config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .credentials_provider(keys);
    config = config.region(Region::new(region));
    for option in parts
        .options
        .iter()
        .filter(|option| option.name() == "endpoint")
    {
        config = config.endpoint_url(option.text());
    }
    (
        Client::from_conf(config.build()),
        parts.path.unwrap_or_else(|| "membership".to_owned()),
    )
}

pub fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

pub fn number(value: impl ToString) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

pub fn item_key(cluster: &ClusterName, item: &str) -> Item {
    HashMap::from([
        ("cluster".to_owned(), text(cluster.to_string())),
        ("item".to_owned(), text(item)),
    ])
}

/// A store as the suite wants it: a server of ours that keeps what it has acknowledged, or one that somebody else runs.
pub struct Store(pub Server);

const YOURS: &[(Capability, Reason)] = &[
    (Capability::Restart, Reason::Managed),
    (Capability::Unavailable, Reason::Managed),
    (Capability::Secret, Reason::NoSecret),
    (Capability::Proxy, Reason::NoProxy),
    (Capability::Hints, Reason::NoHints),
];
const OURS: &[(Capability, Reason)] = &[(Capability::Hints, Reason::NoHints)];

impl Store {
    pub async fn start() -> Self {
        let yours = Kind::DynamoDb
            .url_variables()
            .iter()
            .any(|name| std::env::var_os(name).is_some());
        let ours = Options {
            durable: true,
            password: Some(SECRET.to_owned()),
            ..Options::default()
        };
        Self(
            Server::start(
                Kind::DynamoDb,
                if yours { Options::default() } else { ours },
            )
            .await
            .unwrap(),
        )
    }

    pub fn url(&self) -> String {
        self.0.url().to_owned()
    }

    fn is_yours(&self) -> bool {
        self.0.how() == How::Yours
    }

    async fn items(&self, cluster: &ClusterName) -> Result<Vec<Item>, Stop> {
        let (client, table) = shell(&self.url());
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let query = client
                .query()
                .table_name(&table)
                .consistent_read(true)
                .key_condition_expression("#cluster = :cluster");
            let query = query
                .expression_attribute_names("#cluster", "cluster")
                .expression_attribute_values(":cluster", text(cluster.to_string()));
            let page = query.set_exclusive_start_key(after).send().await?;
            all.extend(page.items.unwrap_or_default());
            after = page.last_evaluated_key;
            if after.is_none() {
                return Ok(all);
            }
        }
    }

    async fn write(&self, requests: Vec<WriteRequest>) -> Result<(), Stop> {
        let (client, table) = shell(&self.url());
        for requests in requests.chunks(25) {
            client
                .batch_write_item()
                .request_items(&table, requests.to_vec())
                .send()
                .await?;
        }
        Ok(())
    }

    pub async fn put(
        &self,
        cluster: &ClusterName,
        item: &str,
        attributes: Item,
    ) -> Result<(), Stop> {
        let (client, table) = shell(&self.url());
        let mut whole = item_key(cluster, item);
        whole.extend(attributes);
        client
            .put_item()
            .table_name(&table)
            .set_item(Some(whole))
            .send()
            .await?;
        Ok(())
    }
}

#[async_trait]
impl Backend for Store {
    fn name(&self) -> String {
        "dynamodb".to_owned()
    }

    async fn client(&self, cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, TableError> {
        open(&self.url(), cluster).await
    }

    fn not_applicable(&self) -> &'static [(Capability, Reason)] {
        if self.is_yours() { YOURS } else { OURS }
    }

    async fn put_row(&self, cluster: &ClusterName, key: &str, body: &str) -> Result<(), Stop> {
        self.put(
            cluster,
            &format!("row/{key}"),
            HashMap::from([("body".to_owned(), text(body))]),
        )
        .await
    }

    async fn put_version_row(&self, cluster: &ClusterName, text: &str) -> Result<(), Stop> {
        self.put(cluster, "row.version", attributes(text)?).await
    }

    async fn drop_version_row(&self, cluster: &ClusterName) -> Result<(), Stop> {
        let (client, table) = shell(&self.url());
        client
            .delete_item()
            .table_name(&table)
            .set_key(Some(item_key(cluster, "row.version")))
            .send()
            .await?;
        Ok(())
    }

    async fn wipe(&self, cluster: &ClusterName) -> Result<(), Stop> {
        let keys = self.items(cluster).await?.into_iter().map(|mut item| {
            item.retain(|name, _| name == "cluster" || name == "item");
            DeleteRequest::builder()
                .set_key(Some(item))
                .build()
                .map(|delete| WriteRequest::builder().delete_request(delete).build())
        });
        self.write(keys.collect::<Result<_, _>>()?).await
    }

    async fn save(&self, cluster: &ClusterName) -> Result<Checkpoint, Stop> {
        Ok(Box::new(self.items(cluster).await?))
    }

    async fn restore(&self, cluster: &ClusterName, saved: &Checkpoint) -> Result<(), Stop> {
        let saved = saved
            .downcast_ref::<Vec<Item>>()
            .ok_or_else(|| Stop::failed("another backend's checkpoint"))?;
        self.wipe(cluster).await?;
        let puts = saved.iter().cloned().map(|item| {
            PutRequest::builder()
                .set_item(Some(item))
                .build()
                .map(|put| WriteRequest::builder().put_request(put).build())
        });
        self.write(puts.collect::<Result<_, _>>()?).await
    }

    async fn restart(&self) -> Result<(), Stop> {
        self.set_available(false).await?;
        self.set_available(true).await
    }

    async fn set_available(&self, available: bool) -> Result<(), Stop> {
        if available {
            self.0.start_again().await?;
        } else {
            self.0.kill().await?;
        }
        Ok(())
    }

    fn secret(&self) -> Result<String, Stop> {
        if self.is_yours() {
            Err(Stop::NotStaged(Capability::Secret))
        } else {
            Ok(SECRET.to_owned())
        }
    }

    /// DynamoDB Local looks at no secret, but at the form of keys.
    async fn refused_client(
        &self,
        cluster: &ClusterName,
    ) -> Option<Result<Arc<dyn MembershipTable>, TableError>> {
        Some(open(&self.url().replace("//local:", "//no-such-key:"), cluster).await)
    }

    async fn proxied(&self, cluster: &ClusterName) -> Result<Proxied, Stop> {
        if self.is_yours() {
            return Err(Stop::NotStaged(Capability::Proxy));
        }
        let proxy = Proxy::to(self.0.address())?;
        let url = self
            .url()
            .replace(&self.0.address().to_string(), &proxy.address().to_string());
        let config = impatient(DynamoConfig::from_url(&url)?);
        Ok(Proxied {
            table: Arc::new(DynamoTable::connect(config, cluster.clone()).await?),
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
            .conflict(1)
            .update_i_am_alive(1);
        ones.commit_again(2).initialize(1).delete(6)
    }

    /// A page has 1 MB.
    fn pages(&self, rows: usize, bytes: usize) -> u64 {
        (rows * bytes).div_ceil(1 << 20) as u64
    }

    fn child(&self, cluster: &ClusterName) -> Result<Command, Stop> {
        let mut command = child::this_test("crash_child", cluster)?;
        command.env(URL, self.url());
        Ok(command)
    }
}

/// A version row's text as the attributes of its item; whatever is none becomes an attribute all the same.
fn attributes(row: &str) -> Result<Item, Stop> {
    let mut out = Item::new();
    let row: serde_json::Value = serde_json::from_str(row)?;
    for (name, value) in row.as_object().ok_or_else(|| Stop::failed("no object"))? {
        if let (Some(records), "recent") = (value.as_array(), name.as_str()) {
            for record in records {
                out.insert(
                    format!("recent_{}", record["version"].as_u64().unwrap_or(0) % 16),
                    text(record.to_string()),
                );
            }
            let last = records
                .last()
                .and_then(|record| record["id"].as_str())
                .map_or_else(|| "0".repeat(32), str::to_owned);
            out.insert("commit".to_owned(), text(last));
            continue;
        }
        let value = match value {
            serde_json::Value::String(it) => text(it),
            serde_json::Value::Number(it) => number(it),
            serde_json::Value::Bool(it) => AttributeValue::Bool(*it),
            other => text(other.to_string()),
        };
        out.insert(name.clone(), value);
    }
    Ok(out)
}

/// A server that forgets everything.
pub async fn server() -> Server {
    // One that belongs to this test, whatever the environment names: what is done to it would not be done to somebody else's.
    let args = vec!["-cors".to_owned(), "*".to_owned()];
    Server::start(
        Kind::DynamoDb,
        Options {
            args,
            ..Options::default()
        },
    )
    .await
    .unwrap()
}

pub fn blue() -> ClusterName {
    "blue".parse().unwrap()
}

pub async fn connect(url: &str) -> Result<DynamoTable, TableError> {
    DynamoTable::connect(DynamoConfig::from_url(url)?, blue()).await
}

/// A table of its own on a server, with options of the URL.
pub fn at(server: &Server, table: &str, options: &str) -> String {
    format!(
        "{}&{options}",
        server.url().replace("/membership?", &format!("/{table}?"))
    )
    .trim_end_matches('&')
    .to_owned()
}

/// Waits until something holds, for as long as a busy machine may need.
pub async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while !holds().await {
        assert!(
            tokio::time::Instant::now() < deadline,
            "{what}: not within a minute"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
