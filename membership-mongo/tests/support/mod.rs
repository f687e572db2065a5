//! What the tests of this crate share: servers, staging past the contract.
#![allow(
    dead_code,
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

pub mod set;

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use conformance_tests::launch::{How, Kind, Options, Server};
use conformance_tests::proxy::Proxy;
use conformance_tests::{
    Backend, Capability, Checkpoint, Effort, Proxied, Reason, RoundTrips, Stop, child,
};
use membership_core::{ClusterName, MembershipTable, TableError};
use membership_mongo::{MongoConfig, MongoTable};
use mongodb::bson::{Bson, Document, doc};
use mongodb::options::{ClientOptions, CollectionOptions, ReadConcern, WriteConcern};
use mongodb::{Client, Collection};

use set::Set;

/// Where the killed process finds the server.
pub const URL: &str = "MEMBERSHIP_MONGODB_TEST_URL";
/// The password of every server that the suite runs on.
pub const SECRET: &str = "correct-horse-battery-staple";
/// How long clients wait where something goes wrong on purpose.
pub const IMPATIENT: Duration = Duration::from_millis(1500);

/// Fewer rounds for the cases whose length is a number and nothing else. With each connection that is cut on purpose the client waits half a
/// second until it looks at the server again, which takes most of the time that the share of `cargo xtask test` may take. No case is left out
/// and none checks less per round; a soak asks for more than the default, and gets it.
pub fn shorter(effort: &mut Effort) {
    if effort.commits <= Effort::default().commits {
        effort.model_operations = 600;
        effort.commits = 400;
        effort.kills = 30;
    }
}

/// The same once more, for what depends on how the table is reached, and not on how often something is done.
pub fn shortest(effort: &mut Effort) {
    if effort.commits <= Effort::default().commits {
        effort.model_operations = 300;
        effort.commits = 200;
        effort.kills = 10;
        effort.rows = 1_000;
    }
}

pub async fn open(
    url: &str,
    cluster: &ClusterName,
) -> Result<Arc<dyn MembershipTable>, TableError> {
    Ok(Arc::new(
        MongoTable::connect(MongoConfig::from_url(url)?, cluster.clone()).await?,
    ))
}

/// The client's connections for monitoring know no user: the first words on those that ask for something begin to say who it is.
pub fn is_monitoring(first: &[u8]) -> bool {
    let says = |word: &[u8]| first.windows(word.len()).any(|part| part == word);
    (says(b"hello") || says(b"isMaster"))
        && !says(b"speculativeAuthenticate")
        && !says(b"saslSupportedMechs")
}

/// A store as the suite wants it: durable, and where it is ours, with a password.
pub struct Store {
    name: &'static str,
    place: Place,
    options: String,
}

enum Place {
    Single(Box<Server>),
    Set(Box<Set>),
}

/// A cluster's documents as they were.
type Saved = Vec<Document>;

const YOURS: &[(Capability, Reason)] = &[
    (Capability::Restart, Reason::Managed),
    (Capability::Unavailable, Reason::Managed),
    (Capability::Secret, Reason::NoSecret),
    (Capability::Proxy, Reason::NoProxy),
    (Capability::Hints, Reason::NoHints),
    (Capability::RefusesOrphanHeartbeats, Reason::SecondRoundTrip),
];
const OURS: &[(Capability, Reason)] = &[
    (Capability::Hints, Reason::NoHints),
    (Capability::RefusesOrphanHeartbeats, Reason::SecondRoundTrip),
];

impl Store {
    /// One member; a server that somebody else runs is taken as it is.
    pub async fn single() -> Self {
        let yours = Kind::MongoDb
            .url_variables()
            .iter()
            .any(|name| std::env::var_os(name).is_some());
        let ours = Options {
            durable: true,
            password: Some(SECRET.to_owned()),
            ..Options::default()
        };
        let server = Server::start(Kind::MongoDb, if yours { Options::default() } else { ours })
            .await
            .unwrap();
        Self {
            name: "mongodb",
            place: Place::Single(Box::new(server)),
            options: String::new(),
        }
    }

    pub async fn majority_reads() -> Self {
        let single = Self::single().await;
        let mark = if single.url().contains('?') { '&' } else { '?' };
        Self {
            name: "mongodb (majority reads)",
            options: format!("{mark}reads=majority"),
            ..single
        }
    }

    /// One member whose connections are all encrypted.
    pub async fn encrypted() -> Self {
        let options = Options {
            durable: true,
            tls: true,
            password: Some(SECRET.to_owned()),
            ..Options::default()
        };
        let server = Server::start(Kind::MongoDb, options).await.unwrap();
        let options = format!("&tls=true&tlsCAFile={}", server.tls().unwrap().ca.display());
        Self {
            name: "mongodb (TLS)",
            place: Place::Single(Box::new(server)),
            options,
        }
    }

    /// Three members.
    pub async fn set() -> Self {
        Self {
            name: "mongodb (three members)",
            place: Place::Set(Box::new(Set::start().await)),
            options: String::new(),
        }
    }

    /// How clients are told to connect.
    pub fn url(&self) -> String {
        match &self.place {
            Place::Single(server) => format!("{}{}", server.url(), self.options),
            Place::Set(set) => set.servers.url(),
        }
    }

    fn is_yours(&self) -> bool {
        matches!(&self.place, Place::Single(server) if server.how() == How::Yours)
    }

    /// The collection as an administrator sees it, whose connections are not encrypted.
    async fn shell(&self) -> Result<Collection<Document>, Stop> {
        let url = match &self.place {
            Place::Single(server) => server.url().to_owned(),
            Place::Set(set) => set.servers.url(),
        };
        let mut options = ClientOptions::parse(&url).await?;
        options.server_selection_timeout = Some(Duration::from_secs(30));
        let mut majority = WriteConcern::majority();
        majority.journal = Some(true);
        let all = CollectionOptions::builder()
            .write_concern(majority)
            .read_concern(ReadConcern::majority())
            .build();
        Ok(Client::with_options(options)?
            .database("membership")
            .collection_with_options("membership", all))
    }
}

/// The names of a cluster's documents.
fn documents(cluster: &ClusterName) -> [String; 2] {
    let key = cluster.store_key();
    [key.clone(), format!("{key}/heartbeats")]
}

fn id(cluster: &ClusterName) -> Document {
    doc! { "_id": cluster.store_key() }
}

fn both(cluster: &ClusterName) -> Document {
    doc! { "_id": { "$in": documents(cluster).to_vec() } }
}

/// What somebody types into MongoDB's shell.
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

#[async_trait]
impl Backend for Store {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    async fn client(&self, cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, TableError> {
        open(&self.url(), cluster).await
    }

    fn not_applicable(&self) -> &'static [(Capability, Reason)] {
        if self.is_yours() { YOURS } else { OURS }
    }

    async fn put_row(&self, cluster: &ClusterName, row: &str, body: &str) -> Result<(), Stop> {
        let mut set = Document::new();
        set.insert(
            format!("members.{}", row.replace('.', "%2E").replace('$', "%24")),
            body,
        );
        self.shell()
            .await?
            .update_one(id(cluster), doc! { "$set": set })
            .await?;
        Ok(())
    }

    async fn put_version_row(&self, cluster: &ClusterName, text: &str) -> Result<(), Stop> {
        self.shell()
            .await?
            .update_one(id(cluster), doc! { "$set": { "version_row": typed(text) } })
            .await?;
        Ok(())
    }

    async fn drop_version_row(&self, cluster: &ClusterName) -> Result<(), Stop> {
        self.shell()
            .await?
            .update_one(id(cluster), doc! { "$unset": { "version_row": "" } })
            .await?;
        Ok(())
    }

    async fn wipe(&self, cluster: &ClusterName) -> Result<(), Stop> {
        self.shell().await?.delete_many(both(cluster)).await?;
        Ok(())
    }

    async fn save(&self, cluster: &ClusterName) -> Result<Checkpoint, Stop> {
        let collection = self.shell().await?;
        let mut saved = Saved::new();
        for name in documents(cluster) {
            saved.extend(collection.find_one(doc! { "_id": name }).await?);
        }
        Ok(Box::new(saved))
    }

    async fn restore(&self, cluster: &ClusterName, saved: &Checkpoint) -> Result<(), Stop> {
        let saved = saved
            .downcast_ref::<Saved>()
            .ok_or_else(|| Stop::failed("another backend's checkpoint"))?;
        let collection = self.shell().await?;
        collection.delete_many(both(cluster)).await?;
        if !saved.is_empty() {
            collection.insert_many(saved).await?;
        }
        Ok(())
    }

    async fn restart(&self) -> Result<(), Stop> {
        match &self.place {
            Place::Single(server) => {
                server.kill().await?;
                server.start_again().await?;
            }
            Place::Set(set) => {
                set.kill_primary().await?;
                set.serves().await;
            }
        }
        Ok(())
    }

    async fn kill_leader(&self, _: &ClusterName) -> Result<(), Stop> {
        match &self.place {
            Place::Single(_) => self.restart().await,
            Place::Set(set) => Ok(set.kill_primary().await?),
        }
    }

    async fn set_available(&self, available: bool) -> Result<(), Stop> {
        match &self.place {
            Place::Single(server) if available => server.start_again().await?,
            Place::Single(server) => server.kill().await?,
            Place::Set(set) => {
                for member in set.servers.members() {
                    if available {
                        member.start_again().await?
                    } else {
                        member.kill().await?
                    }
                }
                if available {
                    set.serves().await;
                }
            }
        }
        Ok(())
    }

    fn secret(&self) -> Result<String, Stop> {
        if self.is_yours() {
            return Err(Stop::NotStaged(Capability::Secret));
        }
        Ok(SECRET.to_owned())
    }

    async fn refused_client(
        &self,
        cluster: &ClusterName,
    ) -> Option<Result<Arc<dyn MembershipTable>, TableError>> {
        Some(open(&self.url().replace("//root:", "//nobody:"), cluster).await)
    }

    async fn proxied(&self, cluster: &ClusterName) -> Result<Proxied, Stop> {
        let (url, proxy) = match &self.place {
            Place::Single(_) if self.is_yours() => return Err(Stop::NotStaged(Capability::Proxy)),
            Place::Single(server) => {
                let proxy = Proxy::to(server.address())?;
                proxy.set_monitoring(is_monitoring);
                (
                    self.url()
                        .replace(&server.address().to_string(), &proxy.address().to_string()),
                    proxy,
                )
            }
            Place::Set(set) => (set.servers.url(), set.proxy.clone()),
        };
        let config = MongoConfig::from_url(&url)?
            .operation_timeout(IMPATIENT)
            .connect_timeout(IMPATIENT);
        Ok(Proxied {
            table: Arc::new(MongoTable::connect(config, cluster.clone()).await?),
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
            .update_i_am_alive(1);
        ones.conflict(2).commit_again(2).initialize(1).delete(3)
    }

    fn child(&self, cluster: &ClusterName) -> Result<Command, Stop> {
        let mut command = child::this_test("crash_child", cluster)?;
        command.env(URL, self.url());
        Ok(command)
    }
}

/// Waits until something holds, for as long as a busy machine may need.
pub async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !holds().await {
        assert!(Instant::now() < deadline, "waited for: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
