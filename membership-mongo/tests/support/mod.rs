//! What the tests of this crate share: MongoDB as the suite's store.
#![allow(dead_code, unused_imports, clippy::unwrap_used, clippy::panic)]

pub mod set;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::helpers::new_user;
use conformance_tests::servers::{RawAccess, ServerBackend, Store, with_user};
use conformance_tests::{Capability, Reason, RoundTrips, Stop};
use membership_core::{ClusterName, MembershipTable, TableError};
use membership_mongo::{MongoConfig, MongoTable};
pub use membership_testbed::suite::SECRET;
use mongodb::bson::{Bson, Document, doc};
use mongodb::options::{ClientOptions, CollectionOptions, ReadConcern, WriteConcern};
use mongodb::{Client, Collection};

/// MongoDB, whether one member or a set of several.
pub struct MongoDb;

#[async_trait]
impl Store for MongoDb {
    type Raw = Raw;

    async fn connect(
        &self,
        url: &str,
        cluster: &ClusterName,
    ) -> Result<Arc<dyn MembershipTable>, TableError> {
        let table = MongoTable::connect(MongoConfig::from_url(url)?, cluster.clone());
        Ok(Arc::new(table.await?))
    }

    /// An administrator's connections are not encrypted.
    async fn raw(backend: &ServerBackend<Self>, cluster: &ClusterName) -> Result<Raw, Stop> {
        let mut options = ClientOptions::parse(backend.servers().url()).await?;
        options.server_selection_timeout = Some(Duration::from_secs(30));
        let mut majority = WriteConcern::majority();
        majority.journal = Some(true);
        let all = CollectionOptions::builder()
            .write_concern(majority)
            .read_concern(ReadConcern::majority())
            .build();
        Ok(Raw {
            collection: Client::with_options(options)?
                .database("membership")
                .collection_with_options("membership", all),
            cluster: cluster.store_key(),
        })
    }

    const MAKES_READERS: bool = true;

    async fn reader(backend: &ServerBackend<Self>) -> Result<String, Stop> {
        let options = ClientOptions::parse(backend.servers().url()).await?;
        let (admin, user) = (Client::with_options(options)?.database("admin"), new_user());
        let resource = doc! { "db": "membership", "collection": "membership" };
        let find = doc! { "resource": resource, "actions": ["find"] };
        for command in [
            doc! { "createRole": &user, "privileges": [find], "roles": [] },
            doc! { "createUser": &user, "pwd": SECRET, "roles": [&user] },
        ] {
            admin.run_command(command).await?;
        }
        Ok(with_user(&backend.url(), &user, SECRET))
    }

    fn not_applicable(&self) -> &'static [(Capability, Reason)] {
        &[
            (Capability::Hints, Reason::NoHints),
            (Capability::RefusesOrphanHeartbeats, Reason::SecondRoundTrip),
        ]
    }

    /// As the README describes it.
    fn round_trips(&self) -> RoundTrips {
        RoundTrips::ONE_EACH.conflict(2).commit_again(2).delete(3)
    }

    fn short_timeouts(&self) -> &'static str {
        "operation_timeout=1500ms&connect_timeout=1500ms"
    }

    fn monitoring(&self) -> Option<fn(&[u8]) -> bool> {
        Some(is_monitoring)
    }
}

/// The client's connections for monitoring have no user. The first commands of all other
/// connections authenticate.
pub fn is_monitoring(first: &[u8]) -> bool {
    let says = |word: &[u8]| first.windows(word.len()).any(|part| part == word);
    (says(b"hello") || says(b"isMaster"))
        && !says(b"speculativeAuthenticate")
        && !says(b"saslSupportedMechs")
}

/// The fields of a document that are not documents themselves, also of those within it.
fn leaves(document: &Document) -> usize {
    let of = |value: &Bson| value.as_document().map_or(1, leaves);
    document.iter().map(|(_, value)| of(value)).sum()
}

/// The documents of a cluster.
pub struct Raw {
    collection: Collection<Document>,
    cluster: String,
}

impl Raw {
    fn table(&self) -> Document {
        doc! { "_id": &self.cluster }
    }

    /// The names of its documents.
    fn documents(&self) -> [String; 2] {
        [self.cluster.clone(), format!("{}/heartbeats", self.cluster)]
    }

    async fn update(&self, change: Document) -> Result<(), Stop> {
        self.collection.update_one(self.table(), change).await?;
        Ok(())
    }
}

/// The field of a row.
fn member(row: &str) -> String {
    format!("members.{}", row.replace('.', "%2E").replace('$', "%24"))
}

#[async_trait]
impl RawAccess for Raw {
    type Saved = Vec<Document>;

    async fn put_row(&mut self, row: &str, body: &str) -> Result<(), Stop> {
        self.update(doc! { "$set": { member(row): body } }).await
    }

    async fn put_version_row(&mut self, text: &str) -> Result<(), Stop> {
        self.update(doc! { "$set": { "version_row": typed(text) } })
            .await
    }

    async fn drop_row(&mut self, row: Option<&str>) -> Result<(), Stop> {
        let field = row.map_or("version_row".to_owned(), member);
        self.update(doc! { "$unset": { field: "" } }).await
    }

    async fn count(&mut self) -> Result<usize, Stop> {
        let all = self.save().await?;
        Ok(all.iter().map(leaves).sum())
    }

    async fn save(&mut self) -> Result<Vec<Document>, Stop> {
        let mut saved = Vec::new();
        for name in self.documents() {
            saved.extend(self.collection.find_one(doc! { "_id": name }).await?);
        }
        Ok(saved)
    }

    async fn restore(&mut self, saved: &Vec<Document>) -> Result<(), Stop> {
        let both = doc! { "_id": { "$in": self.documents().to_vec() } };
        self.collection.delete_many(both).await?;
        if !saved.is_empty() {
            self.collection.insert_many(saved).await?;
        }
        Ok(())
    }
}

/// A command as an administrator types it into MongoDB's shell.
fn typed(text: &str) -> Bson {
    fn bson(json: serde_json::Value) -> Bson {
        match json {
            serde_json::Value::Null => Bson::Null,
            serde_json::Value::Bool(value) => value.into(),
            serde_json::Value::Number(number) => number
                .as_i64()
                .map_or_else(|| number.as_f64().unwrap().into(), Bson::from),
            serde_json::Value::String(text) => text.into(),
            serde_json::Value::Array(list) => Bson::Array(list.into_iter().map(bson).collect()),
            serde_json::Value::Object(map) => Bson::Document(
                map.into_iter()
                    .map(|(name, value)| (name, bson(value)))
                    .collect(),
            ),
        }
    }
    serde_json::from_str(text).map_or_else(|_| text.into(), bson)
}
