//! Where the servers are, which bucket is used, and what the user asserts about it.

use membership_core::{ConnectionString, TableError, TableErrorKind};
use membership_provider::{Credentials, Endpoint, Secret, Timeouts, TlsFiles, environment};

use crate::STORE;
use crate::error::error;

/// The schemes of its connection strings.
pub(crate) const SCHEMES: &[&str] = &["nats"];
/// Where NATS listens unless the connection string says otherwise.
const DEFAULT_PORT: u16 = 4222;
/// The most replicas that JetStream keeps.
const MOST_REPLICAS: usize = 5;
/// The options, for the error about another one.
const OPTIONS: &str =
    "bucket, replicas, sync, tls, tls_ca, tls_cert, tls_key, operation_timeout and connect_timeout";

/// How to connect to NATS. `Debug` hides the password (clause T15).
#[derive(Clone, Debug)]
pub struct NatsConfig {
    pub(crate) servers: Vec<Endpoint>,
    pub(crate) login: Login,
    pub(crate) timeouts: Timeouts,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) bucket: String,
    /// How many servers must keep the bucket; `None` accepts what is there, and makes a bucket on
    /// one.
    pub(crate) replicas: Option<usize>,
    /// Whether the user asserts that every server flushes to the disk before it acknowledges. No
    /// client can read that setting.
    pub(crate) flushes: bool,
}

/// How a client proves who it is.
#[derive(Clone, Debug)]
pub(crate) enum Login {
    Nobody,
    Token(Secret),
    User(Credentials),
}

impl NatsConfig {
    /// What a connection string says:
    /// `nats://[user:password@]host[:port][,host[:port]…][?option=value&…]`. A user without a
    /// password, or a password without a user, is a token. Without either, user and password come
    /// from `NATS_USER` and `NATS_PASSWORD`.
    ///
    /// | option | meaning | default |
    /// |---|---|---|
    /// | `bucket` | name of the key-value bucket | `membership` |
    /// | `replicas` | how many servers must keep the bucket: 1 to 5 | as it is; a new one on 1 |
    /// | `sync` | `always`: every server has `sync_interval: always`, so that acknowledged commits are kept | `interval` |
    /// | `tls` | encrypts; a server that requires TLS also gets it without this option | `false` |
    /// | `tls_ca`, `tls_cert`, `tls_key` | PEM files | the system's authorities |
    /// | `operation_timeout`, `connect_timeout` | such as `3s` | those of [`Timeouts`] |
    ///
    /// # Errors
    /// `Configuration`; the string is not repeated, because it may hold a password.
    pub fn from_url(url: &str) -> Result<Self, TableError> {
        let url = ConnectionString::parse(STORE, SCHEMES, url)?;
        if url.path.is_some() {
            return Err(wrong(
                "a connection string has no path: name the bucket with `?bucket=`",
            ));
        }
        let mut config = Self {
            servers: Endpoint::list(&url.hosts, DEFAULT_PORT),
            login: Login::find(url.user, url.password, environment)?,
            timeouts: Timeouts::default(),
            tls: None,
            bucket: "membership".to_owned(),
            replicas: None,
            flushes: false,
        };
        let (mut encrypted, mut files) = (false, TlsFiles::default());
        for option in &url.options {
            match option.name() {
                "bucket" => config.bucket = option.text(),
                "replicas" => config.replicas = Some(option.number()?),
                "sync" => {
                    config.flushes = option.one_of(&[("always", true), ("interval", false)])?;
                }
                "tls" => encrypted = option.flag()?,
                _ if config.timeouts.set(option)? || files.set(option) => {}
                _ => return Err(option.unknown(OPTIONS)),
            }
        }
        config.timeouts.validate(STORE)?;
        files.validate(STORE, encrypted, "tls=true")?;
        config.tls = encrypted.then_some(files);
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), TableError> {
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if self.bucket.is_empty() || self.bucket.len() > 64 || !self.bucket.chars().all(legal) {
            return Err(wrong(
                "option `bucket` is 1 to 64 letters, digits, hyphens and underscores",
            ));
        }
        if !(1..=MOST_REPLICAS).contains(&self.replicas.unwrap_or(1)) {
            return Err(wrong("option `replicas` is 1 to 5"));
        }
        let plain = self.tls.is_none() && !matches!(self.login, Login::Nobody);
        Endpoint::warn_if_exposed(STORE, &self.servers, plain, "use tls=true");
        Ok(())
    }
}

impl Login {
    fn find(
        user: Option<String>,
        password: Option<String>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, TableError> {
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        Ok(match (given(user), given(password)) {
            (Some(token), None) | (None, Some(token)) => Self::Token(Secret::from(token)),
            (user, password) => {
                let variables = ["NATS_USER", "NATS_PASSWORD"];
                let found = Credentials::find(STORE, user, password, environment, variables)?;
                found.map_or(Self::Nobody, Self::User)
            }
        })
    }
}

fn wrong(message: &str) -> TableError {
    error(TableErrorKind::Configuration, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<NatsConfig, String> {
        NatsConfig::from_url(url).map_err(|e| e.to_string())
    }

    #[test]
    fn servers_bucket_and_assertions_are_read() {
        let config = parse("nats://a,[::1]:9?bucket=b-1&replicas=3&sync=always&tls=true").unwrap();
        assert_eq!(Endpoint::join(&config.servers), "a:4222,[::1]:9");
        assert_eq!((config.bucket.as_str(), config.replicas), ("b-1", Some(3)));
        assert!(config.flushes && config.tls.is_some());
        let config = parse("nats://a").unwrap();
        assert_eq!(
            (config.bucket.as_str(), config.replicas),
            ("membership", None)
        );
        assert!(!config.flushes && config.tls.is_none());
    }

    #[test]
    fn a_part_alone_is_a_token_and_nothing_shows_it() {
        for url in ["nats://hunter2@a", "nats://:hunter2@a"] {
            let config = parse(url).unwrap();
            assert!(matches!(config.login, Login::Token(_)), "{url}");
            assert!(!format!("{config:?}").contains("hunter2"));
        }
        let config = parse("nats://ops:hunter2@a").unwrap();
        assert!(matches!(&config.login, Login::User(who) if who.user == "ops"));
        assert!(!format!("{config:?}").contains("hunter2"));
    }

    #[test]
    fn what_cannot_work_is_refused() {
        for (url, why) in [
            ("nats://a/bucket", "no path"),
            ("nats://a?bucket=a.b", "option `bucket`"),
            ("nats://a?replicas=0", "option `replicas`"),
            ("nats://a?replicas=6", "option `replicas`"),
            ("nats://a?sync=maybe", "option `sync`"),
            ("nats://a?colour=red", "there are bucket"),
            ("nats://a?tls_ca=/ca.pem", "use tls=true"),
            ("nats://a?operation_timeout=0s", "operation_timeout"),
        ] {
            let error = parse(url).unwrap_err();
            assert!(error.contains(why), "{url}: {error}");
        }
    }
}
