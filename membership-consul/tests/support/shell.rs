//! What somebody with Consul's own tools has: keys and values, past the contract and past the provider.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use conformance_tests::Stop;
use membership_core::{ClusterName, ConnectionString};
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

    /// One request; status and body.
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

    /// Everything below a folder goes, and this stands there instead; at once, as far as a transaction takes it.
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
    key.bytes()
        .map(|byte| match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
            byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

/// The keys below `version/` that a version row's text stands for; whatever is none of a version row goes where its fixed part is.
pub fn version_keys(folder: &str, text: &str) -> Result<Vec<Pair>, Stop> {
    let mut row: Value = serde_json::from_str(text)?;
    let fields = row
        .as_object_mut()
        .ok_or_else(|| Stop::failed("no object"))?;
    let mut pairs = Vec::new();
    let mut pair = |name: String, value: String| {
        pairs.push((format!("{folder}version/{name}"), value.into_bytes()))
    };
    let records = fields.remove("recent");
    let records = records
        .as_ref()
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    for record in records {
        pair(
            format!("recent/{:02}", record["version"].as_u64().unwrap_or(0) % 16),
            record.to_string(),
        );
    }
    if let Some(settings) = fields.remove("settings") {
        pair("settings".to_owned(), settings.to_string());
    }
    if let Some(Value::String(core)) = fields.remove("core") {
        pair("core".to_owned(), core);
    }
    if let (Some(version), Some(Value::String(table))) =
        (fields.remove("version"), fields.remove("table_id"))
    {
        let commit = records
            .last()
            .and_then(|record| record["id"].as_str())
            .map_or_else(|| "0".repeat(32), str::to_owned);
        let count = fields.remove("row_count").unwrap_or_default();
        let more = if fields.remove("deleting") == Some(Value::Bool(true)) {
            ".deleting"
        } else {
            ""
        };
        pair(
            format!("at/{version}.{table}.{commit}{more}"),
            format!("{{\"row_count\":{count}}}"),
        );
    }
    pair("table".to_owned(), row.to_string());
    Ok(pairs)
}
