//! `redis://`, `rediss://`, `redis+sentinel://` and `redis+cluster://` as a configuration.

use membership_core::{ConnectionOption, ConnectionString, Durability, TableError};

use crate::STORE;
use crate::config::{Address, RedisConfig, Servers, wrong};

/// Where a user's name and password come from when the URL has none.
const USERNAME: &str = "MEMBERSHIP_REDIS_USERNAME";
const PASSWORD: &str = "MEMBERSHIP_REDIS_PASSWORD";

const DEFAULT_PORT: u16 = 6379;
const DEFAULT_SENTINEL_PORT: u16 = 26379;

const OPTIONS: &str = "prefix, db, operation_timeout, connect_timeout, min_replicas, replica_timeout, durability, tls, tls_ca, tls_cert, \
                       tls_key, sentinel_username and sentinel_password";

/// See [`RedisConfig::from_url`].
pub(crate) fn parse(
    url: &str,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<RedisConfig, TableError> {
    let url = ConnectionString::parse(
        STORE,
        &["redis", "rediss", "redis+sentinel", "redis+cluster"],
        url,
    )?;
    if url.hosts.is_empty() {
        return Err(wrong("the URL names no host: write redis://host:port"));
    }
    let addresses = |default_port: u16| -> Vec<Address> {
        url.hosts
            .iter()
            .map(|(host, port)| Address {
                host: host.clone(),
                port: port.unwrap_or(default_port),
            })
            .collect()
    };
    let path = url
        .path
        .as_deref()
        .unwrap_or_default()
        .trim_end_matches('/');
    let mut database = path;
    let servers = match url.scheme.as_str() {
        "redis+sentinel" => {
            if path.is_empty() {
                return Err(wrong(
                    "a Sentinel URL names its master: redis+sentinel://host:26379,host:26379/mymaster",
                ));
            }
            database = "";
            Servers::Sentinel {
                sentinels: addresses(DEFAULT_SENTINEL_PORT),
                master: path.to_owned(),
                username: None,
                password: None,
            }
        }
        "redis+cluster" => Servers::Cluster(addresses(DEFAULT_PORT)),
        _ => match addresses(DEFAULT_PORT).as_slice() {
            [one] => Servers::Single(one.clone()),
            _ => {
                return Err(wrong(
                    "this scheme takes one host; for several there are redis+sentinel:// and redis+cluster://",
                ));
            }
        },
    };
    let mut config = RedisConfig::with_servers(servers);
    if url.scheme == "rediss" {
        config = config.tls(true);
    }
    if !database.is_empty() {
        config =
            config.database(database.parse().map_err(|_| {
                wrong("the path of the URL is the number of a database, such as /0")
            })?);
    }

    let (name, password) = (url.user, url.password.filter(|p| !p.is_empty()));
    if let Some(password) = password.or_else(|| environment(PASSWORD)) {
        match name.or_else(|| environment(USERNAME)) {
            Some(name) => config = config.credentials(name, password),
            None => config = config.password(password),
        }
    } else if name.is_some() {
        return Err(wrong(format!(
            "the URL names a user without a password: add it, or set {PASSWORD}"
        )));
    }

    for option in url.options {
        config = set(config, &option)?;
    }
    config.validate()?;
    Ok(config)
}

fn set(config: RedisConfig, option: &ConnectionOption) -> Result<RedisConfig, TableError> {
    let name = option.name();
    Ok(match name {
        "prefix" => config.prefix(option.text()),
        "db" => config.database(option.number()?),
        "operation_timeout" => config.operation_timeout(option.duration()?),
        "connect_timeout" => config.connect_timeout(option.duration()?),
        "min_replicas" => config.min_replicas(option.number()?),
        "replica_timeout" => config.replica_timeout(option.duration()?),
        "durability" => config.durability(option.one_of(&[
            ("kept", Durability::Kept),
            ("may_be_lost", Durability::MayBeLost),
        ])?),
        "tls" => config.tls(option.flag()?),
        "tls_ca" => config.tls_ca_file(option.text()),
        "tls_cert" => config.tls_certificate_file(option.text()),
        "tls_key" => config.tls_key_file(option.text()),
        "sentinel_username" | "sentinel_password"
            if !matches!(config.servers(), Servers::Sentinel { .. }) =>
        {
            return Err(wrong(format!(
                "option `{name}` is for Sentinel: redis+sentinel://host:26379/mymaster"
            )));
        }
        "sentinel_username" => config.sentinel_username(option.text()),
        "sentinel_password" => config.sentinel_password(option.text()),
        _ => return Err(option.unknown(OPTIONS)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use membership_core::TableErrorKind;

    fn read(url: &str) -> Result<RedisConfig, TableError> {
        parse(url, |_| None)
    }

    #[test]
    fn urls_name_servers() {
        for (url, shown) in [
            ("redis://localhost", "redis://localhost:6379/0"),
            ("redis://h:1/3", "redis://h:1/3"),
            ("rediss://h:1", "rediss://h:1/0"),
            ("redis://[::1]:7/", "redis://[::1]:7/0"),
            (
                "redis+sentinel://a,b:7/main",
                "redis+sentinel://a:26379,b:7/main?db=0",
            ),
            (
                "redis+sentinel://a/main?db=2&tls=true",
                "redis+sentinel://a:26379/main?db=2&tls=true",
            ),
            (
                "redis+cluster://a:1,b:2,c",
                "redis+cluster://a:1,b:2,c:6379",
            ),
            ("REDIS://u:p%40ss@h", "redis://h:6379/0"),
        ] {
            assert_eq!(read(url).unwrap().shown(), shown, "{url}");
        }
    }

    #[test]
    fn credentials_come_from_the_url_or_the_environment() {
        let env = |name: &str| Some(format!("{}-value", name.rsplit('_').next().unwrap()));
        for (url, expected) in [
            ("redis://bo:p%40ss@h", (Some("bo"), Some("p@ss"))),
            (
                "redis://:secret@h",
                (Some("USERNAME-value"), Some("secret")),
            ),
            ("redis://bo@h", (Some("bo"), Some("PASSWORD-value"))),
            (
                "redis://h",
                (Some("USERNAME-value"), Some("PASSWORD-value")),
            ),
        ] {
            assert_eq!(parse(url, env).unwrap().user(), expected, "{url}");
        }
        assert_eq!(read("redis://h").unwrap().user(), (None, None));
        assert_eq!(
            read("redis://:secret@h").unwrap().user(),
            (None, Some("secret"))
        );
        assert!(
            read("redis://bo@h")
                .unwrap_err()
                .to_string()
                .contains("MEMBERSHIP_REDIS_PASSWORD")
        );
    }

    #[test]
    fn nonsense_is_refused_with_advice_and_shows_no_secret() {
        for (url, why) in [
            ("redis:h", "`redis://`"),
            ("http://u:hunter2@h", "`redis+cluster://`"),
            ("redis://u:hunter2@", "names no host"),
            ("redis://u:hunter2@a,b", "takes one host"),
            ("redis://h:0", "1 to 65535"),
            ("redis://u:hunter2@h:x", "1 to 65535"),
            ("redis://h/x", "number of a database"),
            ("redis://h?colour=hunter2", "`colour` is no option"),
            ("redis://h?tls=perhaps", "true or false"),
            ("redis://h?operation_timeout=soon", "such as 3s"),
            ("redis://h?operation_timeout=0s", "10 ms"),
            ("redis://h?prefix={a}", "prefix"),
            ("redis://h?prefix=", "prefix"),
            ("redis://h?min_replicas=x", "whole number"),
            ("redis://h?durability=great", "kept or may_be_lost"),
            ("redis://h?sentinel_password=hunter2", "Sentinel"),
            ("redis+sentinel://h", "names its master"),
            ("redis+sentinel://h/m?durability=kept", "failover"),
            ("redis+cluster://h/1", "database 0"),
            ("redis://h?tls_ca=/ca.pem", "tls"),
            ("redis://h%zz", "hexadecimal"),
        ] {
            let error = read(url).map(|c| c.shown()).unwrap_err();
            assert_eq!(error.kind(), TableErrorKind::Configuration, "{url}");
            assert!(error.to_string().contains(why), "{url}: {error}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}
