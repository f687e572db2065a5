//! `zk://` as a configuration.

use membership_core::{ConnectionOption, ConnectionString, TableError};

use crate::STORE;
use crate::config::{ZkConfig, wrong};

/// Where a user's name and password come from when the URL has none.
const USERNAME: &str = "MEMBERSHIP_ZK_USERNAME";
const PASSWORD: &str = "MEMBERSHIP_ZK_PASSWORD";
const DEFAULT_PORT: u16 = 2181;
const OPTIONS: &str = "operation_timeout, session_timeout, acl, tls, tls_ca, tls_cert and tls_key";

/// See [`ZkConfig::from_url`].
pub(crate) fn parse(
    url: &str,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<ZkConfig, TableError> {
    let url = ConnectionString::parse(STORE, &["zk"], url)?;
    if url.hosts.is_empty() {
        return Err(wrong("the URL names no host: write zk://host:port"));
    }
    let mut config = ZkConfig::new(
        url.hosts
            .into_iter()
            .map(|(host, port)| (host, port.unwrap_or(DEFAULT_PORT))),
    );
    if let Some(path) = url.path {
        config = config.root(path);
    }
    let named = url.user.is_some() || url.password.as_ref().is_some_and(|p| !p.is_empty());
    let password = url
        .password
        .filter(|p| !p.is_empty())
        .or_else(|| environment(PASSWORD));
    match (url.user.or_else(|| environment(USERNAME)), password) {
        (Some(user), Some(password)) => config = config.credentials(user, password),
        (Some(_), None) => {
            return Err(wrong(format!(
                "there is a user without a password: add it to the URL, or set {PASSWORD}"
            )));
        }
        (None, Some(_)) if named => {
            return Err(wrong(format!(
                "there is a password without a user: add it to the URL, or set {USERNAME}"
            )));
        }
        (None, _) => {}
    }
    for option in url.options {
        config = set(config, &option)?;
    }
    config.validate()?;
    Ok(config)
}

fn set(config: ZkConfig, option: &ConnectionOption) -> Result<ZkConfig, TableError> {
    Ok(match option.name() {
        "operation_timeout" => config.operation_timeout(option.duration()?),
        "session_timeout" => config.session_timeout(option.duration()?),
        "acl" => config.open(option.one_of(&[("creator", false), ("open", true)])?),
        "tls" => config.tls(option.flag()?),
        "tls_ca" => config.tls_ca_file(option.text()),
        "tls_cert" => config.tls_certificate_file(option.text()),
        "tls_key" => config.tls_key_file(option.text()),
        _ => return Err(option.unknown(OPTIONS)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use membership_core::TableErrorKind;
    use std::time::Duration;

    fn read(url: &str) -> Result<ZkConfig, TableError> {
        parse(url, |_| None)
    }

    #[test]
    fn urls_name_servers_and_a_root() {
        for (url, at, root) in [
            ("zk://localhost", "localhost:2181", "/membership"),
            ("zk://a,b:7,[::1]/x/y", "a:2181, b:7, [::1]:2181", "/x/y"),
            ("ZK://a:1/x/", "a:1", "/x"),
        ] {
            let config = read(url).unwrap();
            assert_eq!(
                (config.at().as_str(), config.root_path()),
                (at, root),
                "{url}"
            );
        }
        let config =
            read("zk://u:p%40@a/?operation_timeout=2s&session_timeout=9s&acl=open").unwrap();
        assert_eq!(config.login(), Some(&("u".to_owned(), "p@".to_owned())));
        assert_eq!(
            (config.timeout(), config.session(), config.is_open()),
            (Duration::from_secs(2), Duration::from_secs(9), true)
        );
        assert!(!read("zk://u:p@a").unwrap().is_open() && read("zk://a").unwrap().is_open());
    }

    #[test]
    fn who_connects_may_come_from_the_environment() {
        let all = |name: &str| Some(format!("{}-value", name.rsplit('_').next().unwrap()));
        assert_eq!(
            parse("zk://a", all).unwrap().login(),
            Some(&("USERNAME-value".to_owned(), "PASSWORD-value".to_owned()))
        );
        assert_eq!(
            parse("zk://bo@a", all).unwrap().login(),
            Some(&("bo".to_owned(), "PASSWORD-value".to_owned()))
        );
        assert_eq!(
            parse("zk://bo:x@a", all).unwrap().login(),
            Some(&("bo".to_owned(), "x".to_owned()))
        );
    }

    #[test]
    fn bad_urls_say_what_to_write_and_show_no_secret() {
        for url in [
            "redis://hush-hush@a",
            "zk://",
            "zk://u@a",
            "zk://:hush-hush@a",
            "zk://u:hush-hush@a:99999",
            "zk://u:hush-hush@a/x//y",
            "zk://u:hush-hush@a?colour=hush-hush",
            "zk://u:hush-hush@a?acl=hush-hush",
            "zk://u:hush-hush@a?tls",
            "zk://u:hush-hush@a?operation_timeout=0s",
        ] {
            let e = read(url).unwrap_err();
            assert_eq!(e.kind(), TableErrorKind::Configuration, "{url}: {e}");
            assert!(!format!("{e} {e:?}").contains("hush"), "{url}: {e}");
        }
    }
}
