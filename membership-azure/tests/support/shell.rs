//! Access to a table with the service's own tools: requests of this test, not of the provider.

use async_trait::async_trait;
use azure_core::credentials::Secret;
use azure_core::hmac::hmac_sha256;
use azure_core::time::{OffsetDateTime, to_rfc7231};
use conformance_tests::Stop;
use conformance_tests::servers::{RawAccess, VersionRowFields};
use membership_core::{ClusterName, ConnectionString};
use membership_testbed::suite::escaped;
use serde_json::{Map, Value};

/// One partition, under the account's key.
pub struct Shell {
    http: reqwest::Client,
    pub endpoint: String,
    account: String,
    key: Secret,
    table: String,
    partition: String,
}

/// The row key of a row, as the README describes it.
pub fn row_key(key: &str) -> String {
    escaped(key, "-_.:@[]", |b| format!("~{b:02x}"))
}

fn in_address(text: &str) -> String {
    escaped(text, "-_.~", |b| format!("%{b:02X}"))
}

impl Shell {
    /// For `azure-table://account/table?account_key=…`, perhaps with an `endpoint`. None for a URL
    /// without the key.
    pub fn of(url: &str, cluster: &ClusterName) -> Option<Self> {
        let url = ConnectionString::parse("test", &["azure-table"], url).unwrap();
        let option = |name: &str| {
            let mut options = url.options.iter();
            options
                .find(|option| option.name() == name)
                .map(|option| option.text().to_owned())
        };
        let account = url.hosts[0].0.clone();
        let key = url.password.clone().or_else(|| option("account_key"))?;
        let public = || format!("https://{account}.table.core.windows.net");
        let _chosen = rustls::crypto::aws_lc_rs::default_provider().install_default();
        Some(Self {
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
            endpoint: option("endpoint").unwrap_or_else(public),
            account,
            key: Secret::new(key),
            table: url.path.unwrap_or_else(|| "membership".to_owned()),
            partition: cluster.store_key(),
        })
    }

    /// Any request below the table's address; returns status, headers, body.
    pub async fn ask(
        &self,
        method: reqwest::Method,
        path: &str,
        query: &str,
        body: Option<String>,
        headers: &[(&str, &str)],
    ) -> Result<(u16, reqwest::header::HeaderMap, String), Stop> {
        let address = format!("{}/{}{path}", self.endpoint, self.table);
        let url = reqwest::Url::parse(&format!("{address}{query}"))
            .map_err(|e| Stop::failed(e.to_string()))?;
        let date = to_rfc7231(&OffsetDateTime::now_utc());
        let signature = hmac_sha256(
            &format!("{date}\n/{}{}", self.account, url.path()),
            &self.key,
        )?;
        let mut request = self.http.request(method, url);
        let own = [
            ("accept", "application/json;odata=nometadata"),
            ("x-ms-version", "2019-02-02"),
            ("x-ms-date", date.as_str()),
        ];
        for (name, value) in own.iter().chain(headers) {
            request = request.header(*name, *value);
        }
        request = request.header(
            "authorization",
            format!("SharedKeyLite {}:{signature}", self.account),
        );
        if let Some(body) = body {
            request = request
                .header("content-type", "application/json")
                .body(body);
        }
        let answer = request.send().await?;
        Ok((
            answer.status().as_u16(),
            answer.headers().clone(),
            answer.text().await?,
        ))
    }

    fn entity(&self, row_key: &str) -> String {
        let part = |text: &str| in_address(&text.replace('\'', "''"));
        format!(
            "(PartitionKey='{}',RowKey='{}')",
            part(&self.partition),
            part(row_key)
        )
    }

    async fn write(
        &self,
        method: reqwest::Method,
        row_key: &str,
        properties: &Map<String, Value>,
    ) -> Result<(), Stop> {
        let mut all = properties.clone();
        all.retain(|name, _| name != "Timestamp" && !name.contains("odata."));
        all.insert("PartitionKey".to_owned(), self.partition.clone().into());
        all.insert("RowKey".to_owned(), row_key.into());
        let text = Value::Object(all).to_string();
        match self
            .ask(method, &self.entity(row_key), "", Some(text), &[])
            .await?
        {
            (204, ..) => Ok(()),
            (status, _, said) => Err(Stop::failed(format!(
                "{row_key} cannot be written: {status} {said}"
            ))),
        }
    }

    /// Replaces the entity, whatever it was.
    pub async fn put(&self, row_key: &str, properties: &Map<String, Value>) -> Result<(), Stop> {
        self.write(reqwest::Method::PUT, row_key, properties).await
    }

    /// Changes some of its properties.
    pub async fn merge(&self, row_key: &str, properties: &Map<String, Value>) -> Result<(), Stop> {
        self.write(reqwest::Method::PATCH, row_key, properties)
            .await
    }

    pub async fn delete(&self, row_key: &str) -> Result<(), Stop> {
        match self
            .ask(
                reqwest::Method::DELETE,
                &self.entity(row_key),
                "",
                None,
                &[("if-match", "*")],
            )
            .await?
        {
            (204 | 404, ..) => Ok(()),
            (status, _, said) => Err(Stop::failed(format!(
                "{row_key} cannot be deleted: {status} {said}"
            ))),
        }
    }

    /// All entities of the partition.
    pub async fn entities(&self) -> Result<Vec<Map<String, Value>>, Stop> {
        let filter = in_address(&format!("PartitionKey eq '{}'", self.partition));
        let (mut all, mut next) = (Vec::new(), String::new());
        loop {
            let (status, headers, text) = self
                .ask(
                    reqwest::Method::GET,
                    "()",
                    &format!("?$filter={filter}{next}"),
                    None,
                    &[],
                )
                .await?;
            if text.contains("TableNotFound") {
                return Ok(all);
            }
            let answer: Value = serde_json::from_str(&text)?;
            let Some(page) = answer["value"].as_array() else {
                return Err(Stop::failed(format!("{status} {text}")));
            };
            all.extend(page.iter().filter_map(Value::as_object).cloned());
            let header = |name: &str| {
                headers
                    .get(name)
                    .and_then(|value| value.to_str().ok())
                    .map(in_address)
            };
            match (
                header("x-ms-continuation-NextPartitionKey"),
                header("x-ms-continuation-NextRowKey"),
            ) {
                (Some(partition), row) => {
                    next = format!(
                        "&NextPartitionKey={partition}&NextRowKey={}",
                        row.unwrap_or_default()
                    )
                }
                _ => return Ok(all),
            }
        }
    }
}

#[async_trait]
impl RawAccess for Shell {
    type Saved = Vec<Map<String, Value>>;

    async fn put_row(&mut self, row: &str, body: &str) -> Result<(), Stop> {
        let properties = Map::from_iter([("Body".to_owned(), Value::from(body))]);
        self.merge(&row_key(row), &properties).await
    }

    /// Fields that a version row does not have nevertheless become properties.
    async fn put_version_row(&mut self, text: &str) -> Result<(), Stop> {
        let row = VersionRowFields::parse(text)?;
        let mut properties = Map::new();
        for (place, record) in row.recent() {
            properties.insert(format!("Recent{place}"), record.into());
        }
        if row.has_recent() {
            properties.insert("Commit".to_owned(), row.last_commit().into());
        }
        for (name, text) in row.rest() {
            let words = name.split('_').map(|word| {
                word.get(..1).unwrap_or_default().to_uppercase() + word.get(1..).unwrap_or_default()
            });
            properties.insert(words.collect(), text.into());
        }
        self.put("!version", &properties).await
    }

    async fn drop_row(&mut self, row: Option<&str>) -> Result<(), Stop> {
        let key = row.map_or("!version".to_owned(), row_key);
        self.delete(&key).await
    }

    async fn count(&mut self) -> Result<usize, Stop> {
        Ok(self.save().await?.len())
    }

    async fn save(&mut self) -> Result<Self::Saved, Stop> {
        self.entities().await
    }

    async fn restore(&mut self, saved: &Self::Saved) -> Result<(), Stop> {
        for entity in self.entities().await? {
            self.delete(entity["RowKey"].as_str().unwrap()).await?;
        }
        for entity in saved {
            self.put(entity["RowKey"].as_str().unwrap(), entity).await?;
        }
        Ok(())
    }
}
