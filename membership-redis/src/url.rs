//! `redis://`, `rediss://`, `redis+sentinel://` and `redis+cluster://` as a configuration.

use std::time::Duration;

use membership_core::{Durability, TableError};

use crate::config::{Address, RedisConfig, Servers, wrong};

/// Where a user's name and password come from when the URL has none.
const USERNAME: &str = "MEMBERSHIP_REDIS_USERNAME";
const PASSWORD: &str = "MEMBERSHIP_REDIS_PASSWORD";

const DEFAULT_PORT: u16 = 6379;
const DEFAULT_SENTINEL_PORT: u16 = 26379;

const OPTIONS: &str = "prefix, db, operation_timeout, connect_timeout, min_replicas, replica_timeout, durability, tls, tls_ca, tls_cert, \
                       tls_key, sentinel_username and sentinel_password";

/// See [`RedisConfig::from_url`].
pub(crate) fn parse(url: &str, environment: impl Fn(&str) -> Option<String>) -> Result<RedisConfig, TableError> {
    let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("a Redis URL is redis://host:port/db"))?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, hosts) = authority.rsplit_once('@').map_or(("", authority), |(user, hosts)| (user, hosts));
    let path = decode(path.trim_end_matches('/'))?;

    let single = |hosts: &str| -> Result<Servers, TableError> {
        match addresses(hosts, DEFAULT_PORT)?.as_slice() {
            [one] => Ok(Servers::Single(one.clone())),
            _ => Err(wrong("this scheme takes one host; for several there are redis+sentinel:// and redis+cluster://")),
        }
    };
    let mut database = path.as_str();
    let servers = match scheme.to_ascii_lowercase().as_str() {
        "redis" | "rediss" => single(hosts)?,
        "redis+sentinel" => {
            if path.is_empty() {
                return Err(wrong("a Sentinel URL names its master: redis+sentinel://host:26379,host:26379/mymaster"));
            }
            database = "";
            Servers::Sentinel { sentinels: addresses(hosts, DEFAULT_SENTINEL_PORT)?, master: path.clone(), username: None, password: None }
        }
        "redis+cluster" => Servers::Cluster(addresses(hosts, DEFAULT_PORT)?),
        _ => return Err(wrong("the schemes are redis://, rediss://, redis+sentinel:// and redis+cluster://")),
    };
    let mut config = RedisConfig::with_servers(servers);
    if scheme.eq_ignore_ascii_case("rediss") {
        config = config.tls(true);
    }
    if !database.is_empty() {
        config = config.database(database.parse().map_err(|_| wrong("the path of the URL is the number of a database, such as /0"))?);
    }

    let (name, password) = user.split_once(':').map_or((user, None), |(name, password)| (name, Some(password)));
    let name = (!name.is_empty()).then(|| decode(name)).transpose()?;
    let password = password.map(decode).transpose()?.filter(|p| !p.is_empty());
    if let Some(password) = password.or_else(|| environment(PASSWORD)) {
        match name.or_else(|| environment(USERNAME)) {
            Some(name) => config = config.credentials(name, password),
            None => config = config.password(password),
        }
    } else if name.is_some() {
        return Err(wrong(format!("the URL names a user without a password: add it, or set {PASSWORD}")));
    }

    for option in query.split('&').filter(|o| !o.is_empty()) {
        let (name, value) = option.split_once('=').unwrap_or((option, "true"));
        config = set(config, name, decode(value)?)?;
    }
    config.validate()?;
    Ok(config)
}

fn set(config: RedisConfig, name: &str, value: String) -> Result<RedisConfig, TableError> {
    let flag = || value.parse::<bool>().map_err(|_| wrong(format!("option `{name}` is true or false")));
    let time = || -> Result<Duration, TableError> {
        humantime::parse_duration(&value).map_err(|_| wrong(format!("option `{name}` is a time such as 3s")))
    };
    let number = || value.parse::<u32>().map_err(|_| wrong(format!("option `{name}` is a whole number")));
    Ok(match name {
        "prefix" => config.prefix(value),
        "db" => config.database(number()?),
        "operation_timeout" => config.operation_timeout(time()?),
        "connect_timeout" => config.connect_timeout(time()?),
        "min_replicas" => config.min_replicas(number()?),
        "replica_timeout" => config.replica_timeout(time()?),
        "durability" => config.durability(match value.as_str() {
            "kept" => Durability::Kept,
            "may_be_lost" => Durability::MayBeLost,
            _ => return Err(wrong("option `durability` is kept or may_be_lost")),
        }),
        "tls" => config.tls(flag()?),
        "tls_ca" => config.tls_ca_file(value),
        "tls_cert" => config.tls_certificate_file(value),
        "tls_key" => config.tls_key_file(value),
        "sentinel_username" | "sentinel_password" if !matches!(config.servers(), Servers::Sentinel { .. }) => {
            return Err(wrong(format!("option `{name}` is for Sentinel: redis+sentinel://host:26379/mymaster")));
        }
        "sentinel_username" => config.sentinel_username(value),
        "sentinel_password" => config.sentinel_password(value),
        other => {
            let other: String = other.chars().take(40).collect();
            return Err(wrong(format!("`{other}` is no option: there are {OPTIONS}")));
        }
    })
}

fn addresses(hosts: &str, default_port: u16) -> Result<Vec<Address>, TableError> {
    hosts.split(',').map(|host| address(host, default_port)).collect()
}

fn address(text: &str, default_port: u16) -> Result<Address, TableError> {
    let port = |text: &str| text.parse::<u16>().ok().filter(|p| *p > 0).ok_or_else(|| wrong("a port is a number from 1 to 65535"));
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or_else(|| wrong("an IPv6 address in a URL ends with ]"))?;
            (host, after.strip_prefix(':').map(port).transpose()?)
        }
        None => match text.split_once(':') {
            Some((host, number)) => (host, Some(port(number)?)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err(wrong("the URL names no host: write redis://host:port"));
    }
    Ok(Address { host: decode(host)?, port: port.unwrap_or(default_port) })
}

fn decode(text: &str) -> Result<String, TableError> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        if b != b'%' {
            out.push(b);
            continue;
        }
        let mut digit = || bytes.next().and_then(|d| char::from(d).to_digit(16)).and_then(|d| u8::try_from(d).ok());
        match (digit(), digit()) {
            (Some(high), Some(low)) => out.push(high << 4 | low),
            _ => return Err(wrong("a % in the URL is not followed by two hexadecimal digits")),
        }
    }
    String::from_utf8(out).map_err(|_| wrong("the %-codes of the URL are not UTF-8"))
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
            ("redis+sentinel://a,b:7/main", "redis+sentinel://a:26379,b:7/main?db=0"),
            ("redis+sentinel://a/main?db=2&tls=true", "redis+sentinel://a:26379/main?db=2&tls=true"),
            ("redis+cluster://a:1,b:2,c", "redis+cluster://a:1,b:2,c:6379"),
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
            ("redis://:secret@h", (Some("USERNAME-value"), Some("secret"))),
            ("redis://bo@h", (Some("bo"), Some("PASSWORD-value"))),
            ("redis://h", (Some("USERNAME-value"), Some("PASSWORD-value"))),
        ] {
            assert_eq!(parse(url, env).unwrap().user(), expected, "{url}");
        }
        assert_eq!(read("redis://h").unwrap().user(), (None, None));
        assert_eq!(read("redis://:secret@h").unwrap().user(), (None, Some("secret")));
        assert!(read("redis://bo@h").unwrap_err().to_string().contains("MEMBERSHIP_REDIS_PASSWORD"));
    }

    #[test]
    fn nonsense_is_refused_with_advice_and_shows_no_secret() {
        for (url, why) in [
            ("redis:h", "redis://host:port/db"),
            ("http://u:hunter2@h", "the schemes are"),
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
