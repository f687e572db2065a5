//! What the tests of this crate share: DynamoDB as the suite's store, and servers for single tests.
#![allow(dead_code, unused_imports, clippy::unwrap_used, clippy::panic)]

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::types::{AttributeValue, DeleteRequest, PutRequest, WriteRequest};
pub use conformance_tests::helpers::{blue, until};
use conformance_tests::servers::{RawAccess, ServerBackend, Store, VersionRowFields};
use conformance_tests::{Capability, Reason, RoundTrips, Stop};
use membership_core::{ClusterName, ConnectionString, MembershipTable, TableError};
use membership_dynamo::{DynamoConfig, DynamoTable};
pub use membership_testbed::suite::SECRET;
use membership_testbed::{Kind, Options, Server};
use serde_json::Value;

/// DynamoDB.
pub struct DynamoDb;

#[async_trait]
impl Store for DynamoDb {
    type Raw = Raw;

    async fn connect(
        &self,
        url: &str,
        cluster: &ClusterName,
    ) -> Result<Arc<dyn MembershipTable>, TableError> {
        let table = DynamoTable::connect(DynamoConfig::from_url(url)?, cluster.clone());
        Ok(Arc::new(table.await?))
    }

    async fn raw(backend: &ServerBackend<Self>, cluster: &ClusterName) -> Result<Raw, Stop> {
        let (client, table) = shell(&backend.url());
        let cluster = cluster.clone();
        Ok(Raw {
            client,
            table,
            cluster,
        })
    }

    fn not_applicable(&self) -> &'static [(Capability, Reason)] {
        &[(Capability::Hints, Reason::NoHints)]
    }

    /// As the README describes it.
    fn round_trips(&self) -> RoundTrips {
        RoundTrips::ONE_EACH.commit_again(2).delete(6)
    }

    /// A page has 1 MB.
    fn pages(&self, rows: usize, bytes: usize) -> u64 {
        (rows * bytes).div_ceil(1 << 20) as u64
    }

    /// The default timeout in a soak: its tables have pages for which a busy DynamoDB Local needs
    /// seconds.
    fn short_timeouts(&self) -> &'static str {
        match std::env::var_os("MEMBERSHIP_CONFORMANCE_EFFORT") {
            Some(effort) if effort == "soak" => "",
            _ => "operation_timeout=2s",
        }
    }

    /// DynamoDB Local checks the form of keys, but no secret.
    fn refused(&self, url: &str, _: &str) -> String {
        url.replace("//local:", "//no-such-key:")
    }
}

pub type Item = HashMap<String, AttributeValue>;

/// A client of the store itself, and the table's name: access with the store's own tools.
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

/// The items of a cluster.
pub struct Raw {
    client: Client,
    table: String,
    cluster: ClusterName,
}

impl Raw {
    async fn put(&self, item: &str, attributes: Item) -> Result<(), Stop> {
        let mut whole = item_key(&self.cluster, item);
        whole.extend(attributes);
        let put = self.client.put_item().table_name(&self.table);
        Ok(put.set_item(Some(whole)).send().await.map(drop)?)
    }

    async fn write(&self, requests: Vec<WriteRequest>) -> Result<(), Stop> {
        for requests in requests.chunks(25) {
            let write = self.client.batch_write_item();
            let write = write.request_items(&self.table, requests.to_vec());
            write.send().await?;
        }
        Ok(())
    }
}

#[async_trait]
impl RawAccess for Raw {
    type Saved = Vec<Item>;

    async fn put_row(&mut self, key: &str, body: &str) -> Result<(), Stop> {
        let body = HashMap::from([("body".to_owned(), text(body))]);
        self.put(&format!("row/{key}"), body).await
    }

    /// Fields that a version row does not have nevertheless become attributes.
    async fn put_version_row(&mut self, row: &str) -> Result<(), Stop> {
        let row = VersionRowFields::parse(row)?;
        let mut attributes = Item::new();
        for (place, record) in row.recent() {
            attributes.insert(format!("recent_{place}"), text(record));
        }
        if row.has_recent() {
            attributes.insert("commit".to_owned(), text(row.last_commit()));
        }
        for (name, value) in row.into_rest() {
            let value = match value {
                Value::String(it) => text(it),
                Value::Number(it) => number(it),
                Value::Bool(it) => AttributeValue::Bool(it),
                other => text(other.to_string()),
            };
            attributes.insert(name, value);
        }
        self.put("row.version", attributes).await
    }

    async fn drop_row(&mut self, key: Option<&str>) -> Result<(), Stop> {
        let item = key.map_or("row.version".to_owned(), |key| format!("row/{key}"));
        let delete = self.client.delete_item().table_name(&self.table);
        let delete = delete.set_key(Some(item_key(&self.cluster, &item)));
        Ok(delete.send().await.map(drop)?)
    }

    async fn count(&mut self) -> Result<usize, Stop> {
        Ok(self.save().await?.len())
    }

    async fn save(&mut self) -> Result<Vec<Item>, Stop> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let query = self.client.query().table_name(&self.table);
            let query = query
                .consistent_read(true)
                .key_condition_expression("#cluster = :cluster")
                .expression_attribute_names("#cluster", "cluster")
                .expression_attribute_values(":cluster", text(self.cluster.to_string()));
            let page = query.set_exclusive_start_key(after).send().await?;
            all.extend(page.items.unwrap_or_default());
            after = page.last_evaluated_key;
            if after.is_none() {
                return Ok(all);
            }
        }
    }

    async fn restore(&mut self, saved: &Vec<Item>) -> Result<(), Stop> {
        let deletes = self.save().await?.into_iter().map(|mut item| {
            item.retain(|name, _| name == "cluster" || name == "item");
            let delete = DeleteRequest::builder().set_key(Some(item)).build();
            delete.map(|delete| WriteRequest::builder().delete_request(delete).build())
        });
        self.write(deletes.collect::<Result<_, _>>()?).await?;
        let puts = saved.iter().cloned().map(|item| {
            let put = PutRequest::builder().set_item(Some(item)).build();
            put.map(|put| WriteRequest::builder().put_request(put).build())
        });
        self.write(puts.collect::<Result<_, _>>()?).await
    }
}

/// A server in memory, for one test alone: with arguments of its own it is never a server that the
/// environment names.
pub async fn server() -> Server {
    let args = vec!["-cors".to_owned(), "*".to_owned()];
    let options = Options {
        args,
        ..Options::default()
    };
    Server::start(Kind::DynamoDb, options).await.unwrap()
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
