//! Access with etcd's own tools: keys and values, without the provider.

use std::sync::Mutex;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use conformance_tests::Stop;
use conformance_tests::servers::{RawAccess, VersionRowFields};
use membership_core::{ClusterName, ConnectionString};
use serde_json::{Value, json};

pub struct Shell {
    client: reqwest::Client,
    members: Vec<String>,
    login: Option<Value>,
    /// A token is invalid after a restart of the member or a change of the password.
    token: Mutex<Option<String>>,
}

/// A key with its value.
pub type Pair = (String, Vec<u8>);

fn code(text: impl AsRef<[u8]>) -> String {
    STANDARD.encode(text)
}

fn decode(value: &Value) -> Vec<u8> {
    STANDARD.decode(value.as_str().unwrap_or_default()).unwrap()
}

/// Creates a user with this permission on the keys below a prefix, and with the tests' password.
pub async fn add_user(shell: &Shell, name: &str, may: &str, prefix: &str) -> Result<(), Stop> {
    let end = format!("{}0", prefix.strip_suffix('/').unwrap());
    let may = json!({ "permType": may, "key": code(prefix), "range_end": code(&end) });
    for (path, body) in [
        (
            "/v3/auth/user/add",
            json!({ "name": name, "password": super::SECRET }),
        ),
        ("/v3/auth/role/add", json!({ "name": name })),
        ("/v3/auth/role/grant", json!({ "name": name, "perm": may })),
        ("/v3/auth/user/grant", json!({ "user": name, "role": name })),
    ] {
        shell.call(path, body).await?;
    }
    Ok(())
}

/// Where a cluster's keys begin.
pub fn base(cluster: &ClusterName) -> String {
    format!("membership/{}/", cluster.store_key())
}

impl Shell {
    /// With the user, the members and the authority of a connection string.
    pub async fn of(url: &str) -> Result<Self, Stop> {
        let parts = ConnectionString::parse("test", &["etcd", "etcd+https"], url)?;
        let scheme = if parts.scheme == "etcd" {
            "http"
        } else {
            "https"
        };
        let members = parts
            .addresses(2379)
            .into_iter()
            .map(|at| format!("{scheme}://{at}"))
            .collect();
        let authority = parts
            .options
            .iter()
            .find(|option| option.name() == "tls_ca")
            .map(|option| std::fs::read(option.text()))
            .transpose()?;
        let trusted = authority
            .map(|pem| reqwest::Certificate::from_pem(&pem))
            .transpose()?;
        let client = reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only(trusted)
            .build()?;
        let mut shell = Self {
            client,
            members,
            login: None,
            token: Mutex::default(),
        };
        if let (Some(user), Some(password)) = (parts.user, parts.password) {
            shell.login = Some(json!({ "name": user, "password": password }));
            shell.authenticate().await?;
        }
        Ok(shell)
    }

    async fn authenticate(&self) -> Result<(), Stop> {
        let Some(login) = &self.login else {
            return Ok(());
        };
        // A request with an old token is refused before the password is checked.
        *self.token.lock().unwrap() = None;
        let answer = self.ask_all("/v3/auth/authenticate", login).await?;
        *self.token.lock().unwrap() = answer["token"].as_str().map(str::to_owned);
        Ok(())
    }

    /// The answer of the first member that answers.
    pub async fn call(&self, path: &str, body: Value) -> Result<Value, Stop> {
        loop {
            match self.ask_all(path, &body).await {
                Err(Stop::Failed(why))
                    if why.contains("invalid auth token") || why.contains("auth store is old") =>
                {
                    self.authenticate().await?;
                }
                other => return other,
            }
        }
    }

    async fn ask_all(&self, path: &str, body: &Value) -> Result<Value, Stop> {
        let mut why = String::new();
        for member in &self.members {
            match self.ask(member, path, body).await {
                Ok(answer) => return Ok(answer),
                Err(Stop::Failed(error)) => why = error,
                Err(other) => return Err(other),
            }
        }
        Err(Stop::failed(why))
    }

    async fn ask(&self, member: &str, path: &str, body: &Value) -> Result<Value, Stop> {
        let mut request = self
            .client
            .post(format!("{member}{path}"))
            .body(body.to_string())
            .timeout(std::time::Duration::from_secs(20));
        let token = self.token.lock().unwrap().clone();
        if let Some(token) = token {
            request = request.header("Authorization", token);
        }
        let response = request.send().await?;
        let (good, text) = (response.status().is_success(), response.text().await?);
        if good {
            Ok(serde_json::from_str(&text)?)
        } else {
            Err(Stop::failed(format!("{member}{path}: {text}")))
        }
    }

    pub async fn get(&self, key: &str) -> Result<Option<String>, Stop> {
        let answer = self
            .call("/v3/kv/range", json!({ "key": code(key) }))
            .await?;
        Ok(answer["kvs"]
            .get(0)
            .map(|pair| String::from_utf8(decode(&pair["value"])).unwrap()))
    }

    pub async fn put(&self, key: &str, value: impl AsRef<[u8]>) -> Result<(), Stop> {
        self.call(
            "/v3/kv/put",
            json!({ "key": code(key), "value": code(value) }),
        )
        .await
        .map(drop)
    }

    pub async fn delete(&self, key: &str) -> Result<(), Stop> {
        self.call("/v3/kv/deleterange", json!({ "key": code(key) }))
            .await
            .map(drop)
    }

    /// Every key that begins with this prefix, which ends with a slash.
    pub async fn all(&self, prefix: &str) -> Result<Vec<Pair>, Stop> {
        let answer = self
            .call(
                "/v3/kv/range",
                json!({ "key": code(prefix), "range_end": code(end(prefix)) }),
            )
            .await?;
        let pairs = answer["kvs"].as_array().cloned().unwrap_or_default();
        Ok(pairs
            .iter()
            .map(|pair| {
                (
                    String::from_utf8(decode(&pair["key"])).unwrap(),
                    decode(&pair["value"]),
                )
            })
            .collect())
    }

    /// Replaces every key that begins with this prefix.
    pub async fn replace(&self, prefix: &str, pairs: &[Pair]) -> Result<(), Stop> {
        self.call(
            "/v3/kv/deleterange",
            json!({ "key": code(prefix), "range_end": code(end(prefix)) }),
        )
        .await?;
        for some in pairs.chunks(100) {
            let puts: Vec<Value> =
                some.iter().map(|(key, value)| json!({ "request_put": { "key": code(key), "value": code(value) } })).collect();
            self.call("/v3/kv/txn", json!({ "success": puts })).await?;
        }
        Ok(())
    }
}

fn end(prefix: &str) -> String {
    format!("{}0", prefix.strip_suffix('/').unwrap())
}

/// The keys of a cluster.
pub struct Raw {
    shell: Shell,
    base: String,
}

impl Raw {
    pub fn new(shell: Shell, cluster: &ClusterName) -> Self {
        let base = base(cluster);
        Self { shell, base }
    }
}

#[async_trait]
impl RawAccess for Raw {
    type Saved = Vec<Pair>;

    async fn put_row(&mut self, row: &str, body: &str) -> Result<(), Stop> {
        let key = format!("{}rows/{row}", self.base);
        self.shell.put(&key, body).await
    }

    /// Fields without a key of their own are in the key `version`.
    async fn put_version_row(&mut self, text: &str) -> Result<(), Stop> {
        let at = |name: &str| format!("{}table/{name}", self.base);
        let mut row = VersionRowFields::parse(text)?;
        let mut pairs: Vec<Pair> = row
            .recent()
            .map(|(place, record)| (at(&format!("recent/{place:02}")), record.into_bytes()))
            .collect();
        for name in ["settings", "core"] {
            let text = row.take_text(name);
            pairs.extend(text.map(|text| (at(name), text.into_bytes())));
        }
        let commit = row.has_recent().then(|| row.last_commit());
        let mut rest = row.into_rest();
        if let Some(commit) = commit {
            rest.insert("commit".to_owned(), commit.into());
        }
        pairs.push((at("version"), Value::Object(rest).to_string().into_bytes()));
        self.shell.replace(&at(""), &pairs).await
    }

    async fn drop_row(&mut self, row: Option<&str>) -> Result<(), Stop> {
        let name = row.map_or("table/version".to_owned(), |row| format!("rows/{row}"));
        self.shell.delete(&format!("{}{name}", self.base)).await
    }

    async fn count(&mut self) -> Result<usize, Stop> {
        Ok(self.save().await?.len())
    }

    async fn save(&mut self) -> Result<Vec<Pair>, Stop> {
        self.shell.all(&self.base).await
    }

    async fn restore(&mut self, saved: &Vec<Pair>) -> Result<(), Stop> {
        self.shell.replace(&self.base, saved).await
    }
}
