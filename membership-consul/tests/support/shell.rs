//! Access with Consul's own tools: keys and values, without the provider.

use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use conformance_tests::Stop;
use conformance_tests::servers::{RawAccess, VersionRowFields};
use membership_core::{ClusterName, ConnectionString};
use membership_testbed::suite::escaped;
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};

/// A key and its value.
pub type Pair = (String, Vec<u8>);

/// A client of the servers of a URL.
pub struct Shell {
    client: Client,
    base: String,
    token: String,
    prefix: String,
}

/// A token with the permissions of this policy.
pub async fn token(shell: &Shell, name: &str, rules: &str) -> String {
    let policy = json!({ "Name": name, "Rules": rules }).to_string();
    let (status, said) = shell.ask(Method::PUT, "/acl/policy", policy).await.unwrap();
    assert!(status.is_success(), "{said}");
    let (status, said) = shell
        .ask(
            Method::PUT,
            "/acl/token",
            json!({ "Policies": [{ "Name": name }] }).to_string(),
        )
        .await
        .unwrap();
    assert!(status.is_success(), "{said}");
    serde_json::from_str::<Value>(&said).unwrap()["SecretID"]
        .as_str()
        .unwrap()
        .to_owned()
}

impl Shell {
    pub fn of(url: &str) -> Self {
        let parts = ConnectionString::parse("test", &["consul", "consul+https"], url).unwrap();
        let mut client = Client::builder()
            .no_proxy()
            .timeout(Duration::from_secs(30));
        let mut scheme = "http";
        if parts.scheme == "consul+https" {
            scheme = "https";
            let file = |name: &str| {
                std::fs::read(
                    parts
                        .options
                        .iter()
                        .find(|option| option.name() == name)
                        .unwrap()
                        .text(),
                )
                .unwrap()
            };
            let identity = [file("tls_cert"), file("tls_key")].join(&b'\n');
            client = client
                .tls_certs_only(reqwest::Certificate::from_pem_bundle(&file("tls_ca")).unwrap());
            client = client.identity(reqwest::Identity::from_pem(&identity).unwrap());
        }
        let address = parts.addresses(8500).first().cloned().unwrap();
        Self {
            client: client.build().unwrap(),
            base: format!("{scheme}://{address}/v1"),
            token: parts.password.unwrap_or_default(),
            prefix: parts.path.unwrap_or_else(|| "membership".to_owned()),
        }
    }

    pub fn folder(&self, cluster: &ClusterName) -> String {
        format!("{}/{}/", self.prefix, cluster.store_key())
    }

    /// One request; returns status and body.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        body: impl Into<Vec<u8>>,
    ) -> Result<(StatusCode, String), Stop> {
        let request = self
            .client
            .request(method, format!("{}{path}", self.base))
            .body(body.into());
        let answer = request.header("X-Consul-Token", &self.token).send().await?;
        Ok((answer.status(), answer.text().await?))
    }

    pub async fn all(&self, folder: &str) -> Result<Vec<Pair>, Stop> {
        let (status, body) = self
            .ask(
                Method::GET,
                &format!("/kv/{}?recurse&consistent", encoded(folder)),
                "",
            )
            .await?;
        if status == StatusCode::NOT_FOUND {
            return Ok(Vec::new());
        }
        let pairs: Vec<Value> = serde_json::from_str(&body)?;
        let text = |pair: &Value, name: &str| pair[name].as_str().unwrap_or_default().to_owned();
        pairs
            .iter()
            .map(|pair| Ok((text(pair, "Key"), STANDARD.decode(text(pair, "Value"))?)))
            .collect()
    }

    pub async fn put(&self, key: &str, value: impl Into<Vec<u8>>) -> Result<(), Stop> {
        let (status, body) = self
            .ask(Method::PUT, &format!("/kv/{}", encoded(key)), value)
            .await?;
        if status.is_success() {
            Ok(())
        } else {
            Err(Stop::failed(format!(
                "{key} is not written: {status} {body}"
            )))
        }
    }

    pub async fn remove(&self, folder: &str) -> Result<(), Stop> {
        let (status, body) = self
            .ask(
                Method::DELETE,
                &format!("/kv/{}?recurse", encoded(folder)),
                "",
            )
            .await?;
        if status.is_success() {
            Ok(())
        } else {
            Err(Stop::failed(format!(
                "{folder} is not removed: {status} {body}"
            )))
        }
    }

    /// Replaces everything below a folder by these keys; at once, as far as one transaction has
    /// room for it.
    pub async fn replace(&self, folder: &str, pairs: &[Pair]) -> Result<(), Stop> {
        let first = json!({ "KV": { "Verb": "delete-tree", "Key": folder } });
        let set = |(key, value): &Pair| json!({ "KV": { "Verb": "set", "Key": key, "Value": STANDARD.encode(value) } });
        let ops: Vec<Value> = std::iter::once(first)
            .chain(pairs.iter().map(set))
            .collect();
        for ops in ops.chunks(60) {
            let (status, body) = self
                .ask(Method::PUT, "/txn", serde_json::to_string(ops)?)
                .await?;
            if !status.is_success() {
                return Err(Stop::failed(format!(
                    "{folder} is not replaced: {status} {body}"
                )));
            }
        }
        Ok(())
    }
}

fn encoded(key: &str) -> String {
    escaped(key, "/-._~", |b| format!("%{b:02X}"))
}

/// The keys of a cluster.
pub struct Raw {
    shell: Shell,
    folder: String,
}

impl Raw {
    pub fn new(shell: Shell, cluster: &ClusterName) -> Self {
        let folder = shell.folder(cluster);
        Self { shell, folder }
    }

    fn row(&self, key: &str) -> String {
        let key = key.replace('%', "%25").replace('/', "%2F");
        format!("{}silo/{key}/row", self.folder)
    }
}

#[async_trait]
impl RawAccess for Raw {
    type Saved = Vec<Pair>;

    async fn put_row(&mut self, key: &str, body: &str) -> Result<(), Stop> {
        self.shell.put(&self.row(key), body).await
    }

    /// Fields without a key of their own are in the key `version/table`.
    async fn put_version_row(&mut self, text: &str) -> Result<(), Stop> {
        let folder = format!("{}version/", self.folder);
        let mut row = VersionRowFields::parse(text)?;
        let mut pairs = Vec::new();
        let mut pair =
            |name: String, value: String| pairs.push((format!("{folder}{name}"), value.into()));
        for (place, record) in row.recent() {
            pair(format!("recent/{place:02}"), record);
        }
        for name in ["settings", "core"] {
            if let Some(text) = row.take_text(name) {
                pair(name.to_owned(), text);
            }
        }
        if let (Some(version), Some(table)) = (row.take("version"), row.take_text("table_id")) {
            let commit = row.last_commit();
            let count = row.take("row_count").unwrap_or_default();
            let deleting = match row.take("deleting") {
                Some(Value::Bool(true)) => ".deleting",
                _ => "",
            };
            pair(
                format!("at/{version}.{table}.{commit}{deleting}"),
                format!("{{\"row_count\":{count}}}"),
            );
        }
        let rest = Value::Object(row.into_rest());
        pair("table".to_owned(), rest.to_string());
        self.shell.replace(&folder, &pairs).await
    }

    async fn drop_row(&mut self, key: Option<&str>) -> Result<(), Stop> {
        let version = || format!("{}version/", self.folder);
        let folder = key.map_or_else(version, |key| self.row(key));
        self.shell.remove(&folder).await
    }

    async fn count(&mut self) -> Result<usize, Stop> {
        Ok(self.save().await?.len())
    }

    async fn save(&mut self) -> Result<Vec<Pair>, Stop> {
        self.shell.all(&self.folder).await
    }

    async fn restore(&mut self, saved: &Vec<Pair>) -> Result<(), Stop> {
        self.shell.replace(&self.folder, saved).await
    }
}
