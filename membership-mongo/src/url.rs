//! `mongodb://` and `mongodb+srv://` as a configuration.

use std::time::Duration;

use membership_core::{ConnectionOption, ConnectionString, Recency, TableError};
use mongodb::options::AuthMechanism;

use crate::STORE;
use crate::config::{DEFAULT_PORT, MongoConfig, Servers, wrong};

/// Where a user's name and password come from when the URL has none.
const USERNAME: &str = "MEMBERSHIP_MONGODB_USERNAME";
const PASSWORD: &str = "MEMBERSHIP_MONGODB_PASSWORD";

const OPTIONS: &str = "replicaSet, authSource, authMechanism, directConnection, tls, tlsCAFile, tlsCertificateKeyFile, appName, \
                       connectTimeoutMS, readConcernLevel, collection, reads, allow_standalone, operation_timeout and connect_timeout";

/// See [`MongoConfig::from_url`].
pub(crate) fn parse(
    url: &str,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<MongoConfig, TableError> {
    let url = ConnectionString::parse(STORE, &["mongodb", "mongodb+srv"], url)?;
    let servers = match (url.scheme.as_str(), url.hosts.as_slice()) {
        (_, []) => {
            return Err(wrong(
                "the URL names no host: write mongodb://host:27017/database",
            ));
        }
        ("mongodb+srv", _) if cfg!(not(feature = "srv")) => {
            return Err(wrong(
                "mongodb+srv:// needs the feature `srv` of membership-mongo (`mongodb-srv` of silo-membership)",
            ));
        }
        ("mongodb+srv", [(name, None)]) => Servers::Srv(name.clone()),
        ("mongodb+srv", _) => {
            return Err(wrong(
                "mongodb+srv:// takes one name without a port: DNS knows the others",
            ));
        }
        (_, hosts) => Servers::Hosts(
            hosts
                .iter()
                .map(|(host, port)| (host.clone(), port.unwrap_or(DEFAULT_PORT)))
                .collect(),
        ),
    };
    let mut config = MongoConfig::with_servers(servers);
    if let Some(database) = url.path {
        // As everywhere with MongoDB: users are looked up where the data is, unless `authSource` says otherwise.
        config = config.auth_source(database.clone()).database(database);
    }
    let (name, password) = (url.user, url.password.filter(|p| !p.is_empty()));
    if let Some(name) = name.or_else(|| environment(USERNAME)) {
        config = match password.or_else(|| environment(PASSWORD)) {
            Some(password) => config.credentials(name, password),
            None => config.username(name),
        };
    } else if password.is_some() {
        return Err(wrong("the URL has a password but no user"));
    }
    for option in url.options {
        config = set(config, &option)?;
    }
    config.validate()?;
    Ok(config)
}

fn set(config: MongoConfig, option: &ConnectionOption) -> Result<MongoConfig, TableError> {
    let levels = [
        ("linearizable", Recency::Linearizable),
        ("majority", Recency::MonotonicPerClient),
    ];
    // MongoDB's own options have their names in any case.
    Ok(match option.name().to_ascii_lowercase().as_str() {
        "replicaset" => config.replica_set(option.text()),
        "authsource" => config.auth_source(option.text()),
        "authmechanism" => config.mechanism(option.one_of(&[
            ("SCRAM-SHA-256", AuthMechanism::ScramSha256),
            ("SCRAM-SHA-1", AuthMechanism::ScramSha1),
            ("MONGODB-X509", AuthMechanism::MongoDbX509),
        ])?),
        "directconnection" => config.direct_connection(option.flag()?),
        "tls" | "ssl" => config.tls(option.flag()?),
        "tlscafile" => config.tls_ca_file(option.text()),
        "tlscertificatekeyfile" => config.tls_certificate_key_file(option.text()),
        "appname" => config.app_name(option.text()),
        "connecttimeoutms" => config.connect_timeout(Duration::from_millis(option.number()?)),
        "reads" | "readconcernlevel" => config.reads(option.one_of(&levels)?),
        "collection" => config.collection(option.text()),
        "allow_standalone" => config.allow_standalone(option.flag()?),
        "operation_timeout" => config.operation_timeout(option.duration()?),
        "connect_timeout" => config.connect_timeout(option.duration()?),
        // What strings that are copied from elsewhere say, and what is done anyway. Nothing is ever sent twice, whatever they ask for.
        "retrywrites" | "retryreads" => option.flag().map(|_| config)?,
        "w" => option.one_of(&[("majority", config)])?,
        "journal" => match option.flag()? {
            true => config,
            false => {
                return Err(option.wrong("true: a commit is acknowledged when it is in the journal"));
            }
        },
        "readpreference" => option.one_of(&[("primary", config)])?,
        _ => return Err(option.unknown(OPTIONS)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use membership_core::TableErrorKind;

    fn read(url: &str) -> Result<MongoConfig, TableError> {
        parse(url, |_| None)
    }

    #[test]
    fn urls_name_servers() {
        for (url, shown) in [
            ("mongodb://localhost", "localhost:27017"),
            (
                "mongodb://a,b:7,[::1]:8/db?replicaSet=rs0",
                "a:27017,b:7,[::1]:8",
            ),
            (
                "MONGODB://u:p%40ss@h/?tls=true&tlscafile=/ca.pem&APPNAME=x",
                "h:27017",
            ),
            (
                "mongodb://h/?retryWrites=true&w=majority&journal=true&readPreference=primary",
                "h:27017",
            ),
            (
                "mongodb://h/?reads=majority&allow_standalone&operation_timeout=2s&connectTimeoutMS=500&directConnection=true",
                "h:27017",
            ),
        ] {
            assert_eq!(read(url).unwrap().shown(), shown, "{url}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_without_secrets() {
        for (url, why) in [
            ("redis://h", "starts with"),
            ("mongodb:///db", "names no host"),
            ("mongodb://h:0", "a port is"),
            ("mongodb://hunter2@h", "without a password"),
            ("mongodb://:hunter2@h", "no user"),
            ("mongodb://u:hunter2@h/a.b", "a database has a name"),
            (
                "mongodb://u:hunter2@h/?collection=a$",
                "a collection has a name",
            ),
            (
                "mongodb://u:hunter2@h/?nonsense=hunter2",
                "`nonsense` is no option",
            ),
            ("mongodb://u:hunter2@h/?w=1", "option `w` is majority"),
            ("mongodb://u:hunter2@h/?journal=false", "journal"),
            (
                "mongodb://u:hunter2@h/?readPreference=secondary",
                "option `readPreference` is primary",
            ),
            (
                "mongodb://u:hunter2@h/?reads=local",
                "linearizable or majority",
            ),
            (
                "mongodb://u:hunter2@h/?operation_timeout=1ms",
                "operation_timeout is",
            ),
            ("mongodb://u:hunter2@h/?tlsCAFile=/x", "tls=true"),
            (
                "mongodb://u:hunter2@a,b/?directConnection=true",
                "takes one host",
            ),
            ("mongodb+srv://u:hunter2@h:1/", "mongodb+srv://"),
        ] {
            let e = read(url).unwrap_err();
            assert_eq!(e.kind(), TableErrorKind::Configuration, "{url}: {e}");
            assert!(e.to_string().contains(why), "{url}: {e}");
            assert!(!format!("{e} {e:?}").contains("hunter2"), "{url}: {e:?}");
        }
    }

    #[test]
    fn users_come_from_the_url_or_the_environment() {
        let environment =
            |name: &str| Some(if name == USERNAME { "ann" } else { "hunter2" }.to_owned());
        let from = |url: &str| format!("{:?}", parse(url, environment).unwrap());
        assert!(from("mongodb://h").contains("username: Some(\"ann\")"));
        let bob = from("mongodb://bob:other@h");
        assert!(
            bob.contains("username: Some(\"bob\")")
                && !bob.contains("other")
                && !bob.contains("hunter2"),
            "{bob}"
        );
    }
}
