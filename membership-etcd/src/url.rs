//! `etcd://` and `etcd+https://` as a configuration.

use membership_core::{ConnectionString, TableError};

use crate::STORE;
use crate::config::{EtcdConfig, wrong};

/// Where a user's name and password come from when the URL has none.
const USERNAME: &str = "MEMBERSHIP_ETCD_USERNAME";
const PASSWORD: &str = "MEMBERSHIP_ETCD_PASSWORD";

const DEFAULT_PORT: u16 = 2379;

const OPTIONS: &str = "operation_timeout, connect_timeout, tls_ca, tls_cert and tls_key";

/// See [`EtcdConfig::from_url`].
pub(crate) fn parse(
    url: &str,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<EtcdConfig, TableError> {
    let url = ConnectionString::parse(STORE, &["etcd", "etcd+https"], url)?;
    let members = url
        .hosts
        .iter()
        .map(|(host, port)| (host.clone(), port.unwrap_or(DEFAULT_PORT)));
    let mut config = EtcdConfig::new(members).tls(url.scheme == "etcd+https");
    if let Some(path) = &url.path {
        config = config.prefix(path.trim_end_matches('/'));
    }
    let password = url
        .password
        .filter(|p| !p.is_empty())
        .or_else(|| environment(PASSWORD));
    config = match (url.user.or_else(|| environment(USERNAME)), password) {
        (Some(user), Some(password)) => config.credentials(user, password),
        (None, None) => config,
        (Some(_), None) => {
            return Err(wrong(format!(
                "a user is named without a password: add it to the URL, or set {PASSWORD}"
            )));
        }
        (None, Some(_)) => {
            return Err(wrong(format!(
                "there is a password without a user: etcd://user:password@host, or set {USERNAME}"
            )));
        }
    };
    for option in &url.options {
        config = match option.name() {
            "operation_timeout" => config.operation_timeout(option.duration()?),
            "connect_timeout" => config.connect_timeout(option.duration()?),
            "tls_ca" => config.tls_ca_file(option.text()),
            "tls_cert" => config.tls_certificate_file(option.text()),
            "tls_key" => config.tls_key_file(option.text()),
            _ => return Err(option.unknown(OPTIONS)),
        };
    }
    config.validate()?;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use membership_core::TableErrorKind;

    use super::*;

    fn read(url: &str) -> Result<EtcdConfig, TableError> {
        parse(url, |_| None)
    }

    #[test]
    fn urls_name_members() {
        for (url, place, scheme) in [
            ("etcd://localhost", "localhost:2379", "http"),
            (
                "etcd://a,b:1,[::1],[::2]:7/",
                "a:2379, b:1, [::1]:2379, [::2]:7",
                "http",
            ),
            ("ETCD+HTTPS://u:p%40ss@h", "h:2379", "https"),
        ] {
            let config = read(url).unwrap();
            assert_eq!(
                (
                    config.place().as_str(),
                    config.scheme(),
                    config.key_prefix()
                ),
                (place, scheme, "membership"),
                "{url}"
            );
        }
        let config = read(
            "etcd+https://u:p%40ss@h/a/b%20c/?operation_timeout=3s&connect_timeout=250ms&tls_ca=/ca&tls_cert=/c&tls_key=/k",
        );
        let config = config.unwrap();
        assert_eq!(
            (config.user(), config.key_prefix()),
            (Some(("u", "p@ss")), "a/b c")
        );
        assert_eq!(config.timeout(), Duration::from_secs(3));
    }

    #[test]
    fn users_come_from_the_environment_where_the_url_has_none() {
        let set = |name: &str| {
            Some(
                if name == USERNAME {
                    "env-user"
                } else {
                    "env-word"
                }
                .to_owned(),
            )
        };
        assert_eq!(
            parse("etcd://h", set).unwrap().user(),
            Some(("env-user", "env-word"))
        );
        assert_eq!(parse("etcd://u:p@h", set).unwrap().user(), Some(("u", "p")));
        assert_eq!(
            parse("etcd://u@h", set).unwrap().user(),
            Some(("u", "env-word"))
        );
        assert_eq!(read("etcd://h").unwrap().user(), None);
    }

    #[test]
    fn what_cannot_work_is_refused_without_showing_it() {
        for (url, why) in [
            ("http://u:secret@h", "`etcd://` or `etcd+https://`"),
            ("etcd://u:secret@", "no host"),
            ("etcd://u:secret@h:x", "port"),
            ("etcd://u:secret@a b", "is no host"),
            ("etcd://secret@h", "without a password"),
            ("etcd://:secret@h", "without a user"),
            ("etcd://u:secret@h//x", "prefix"),
            ("etcd://u:secret@h/a%0a", "prefix"),
            ("etcd://u:secret@h?prefix=x", "`prefix` is no option"),
            ("etcd://u:secret@h?operation_timeout=1", "a time such as 3s"),
            ("etcd://u:secret@h?operation_timeout=1ms", "10 ms to 1 h"),
            ("etcd://u:secret@h?tls_ca=/secret", "etcd+https://"),
            ("etcd+https://u:secret@h?tls_cert=/secret", "come together"),
        ] {
            let error = read(url).unwrap_err();
            assert_eq!(error.kind(), TableErrorKind::Configuration, "{url}");
            assert!(
                error.to_string().contains(why) && !format!("{error} {error:?}").contains("secret"),
                "{url}: {error}"
            );
        }
    }

    #[test]
    fn files_that_are_no_certificates_are_named() {
        for (url, why) in [
            (
                "etcd+https://h?tls_ca=/no/such/file",
                "/no/such/file cannot be read",
            ),
            (
                "etcd+https://h?tls_ca=/dev/null",
                "/dev/null holds no certificate",
            ),
            (
                "etcd+https://h?tls_cert=/dev/null&tls_key=/dev/null",
                "are no certificate and key",
            ),
        ] {
            let error = read(url).unwrap().open().unwrap_err();
            assert!(error.to_string().contains(why), "{url}: {error}");
        }
        read("etcd://h").unwrap().open().unwrap();
    }
}
