//! Which tests belong to which store: one line per store, and the only place to add one.

use crate::kind::Kind;

/// A store's share of all tests.
pub struct Provider {
    /// Its name on the command line.
    pub name: &'static str,
    /// Other names of it. A test belongs to the store that its target or its path names in one of these ways.
    pub also: &'static [&'static str],
    /// The package with its tests. Those that name no store belong to the first line of the package.
    pub package: &'static str,
    /// Features of the package.
    pub features: &'static [&'static str],
    /// The server it needs.
    pub server: Option<Kind>,
    /// Whether a plain `cargo test` has run its tests already.
    pub by_default: bool,
}

/// The line of a store in a network.
const fn store(
    name: &'static str,
    also: &'static [&'static str],
    package: &'static str,
    feature: &'static [&'static str],
    server: Kind,
) -> Provider {
    Provider {
        name,
        also,
        package,
        features: feature,
        server: Some(server),
        by_default: false,
    }
}

/// The line of what needs no server.
const fn plain(
    name: &'static str,
    package: &'static str,
    features: &'static [&'static str],
    by_default: bool,
) -> Provider {
    Provider {
        name,
        also: &[],
        package,
        features,
        server: None,
        by_default,
    }
}

/// All of them.
pub const PROVIDERS: &[Provider] = &[
    plain("memory", "conformance-tests", &[], true),
    plain("sqlite", "membership-sql", &["sqlite"], true),
    store("redis", &[], "membership-redis", &[], Kind::Redis),
    store("valkey", &[], "membership-redis", &[], Kind::Valkey),
    store(
        "postgres",
        &[],
        "membership-sql",
        &["postgres"],
        Kind::Postgres,
    ),
    store(
        "mariadb",
        &["mysql"],
        "membership-sql",
        &["mysql"],
        Kind::MariaDb,
    ),
    store(
        "dynamodb",
        &["dynamo"],
        "membership-dynamo",
        &[],
        Kind::DynamoDb,
    ),
    store(
        "azure-table",
        &["azure", "azurite"],
        "membership-azure",
        &[],
        Kind::Azurite,
    ),
    // Beside the next two, which mostly wait, because it needs most of a core.
    store(
        "cassandra",
        &["scylla"],
        "membership-cassandra",
        &[],
        Kind::Cassandra,
    ),
    store(
        "mongodb",
        &["mongo"],
        "membership-mongo",
        &[],
        Kind::MongoDb,
    ),
    // Three members, whose primary is killed: another set-up of the same store, as Valkey is of Redis.
    store(
        "mongodb-set",
        &["three_members", "replica_set"],
        "membership-mongo",
        &[],
        Kind::MongoDb,
    ),
    store("etcd", &[], "membership-etcd", &[], Kind::Etcd),
    // Three members, whose leader is killed.
    store(
        "etcd-set",
        &["members", "etcd_members"],
        "membership-etcd",
        &[],
        Kind::Etcd,
    ),
    store("zookeeper", &["zk"], "membership-zk", &[], Kind::ZooKeeper),
    // Three servers, whose leader is killed.
    store(
        "zookeeper-set",
        &["three_servers", "ensemble"],
        "membership-zk",
        &[],
        Kind::ZooKeeper,
    ),
    store("consul", &[], "membership-consul", &[], Kind::Consul),
    // Three servers, whose leader is killed.
    store(
        "consul-set",
        &["consul_servers", "three_servers", "several"],
        "membership-consul",
        &[],
        Kind::Consul,
    ),
    // What is no store: the launcher of the servers, the example of a provider, and this program.
    Provider {
        also: &["launch"],
        ..plain("launcher", "conformance-tests", &["launch-tests"], false)
    },
    plain("toy", "membership-toy", &[], false),
    plain("toy-store", "toy-store", &[], false),
    plain("xtask", "xtask", &[], false),
    // Its command that runs the suite, over a file and over one server.
    Provider {
        server: Some(Kind::Redis),
        ..plain("program", SILOS.0, &["conformance", "redis"], false)
    },
];

/// Where real silos run over every store, and the feature that has all of them: the module of a test there is the name of the store.
/// Of the other tests of that package, `cargo test` has run all but those of its command `conformance`.
pub const SILOS: (&str, &str, &str) = ("membership-cli", "full", "stores");

/// The test of the command that runs the suite.
pub const SUITE: &str = "conformance";

/// The line that people mean by a name.
pub fn named(name: &str) -> Result<&'static Provider, String> {
    PROVIDERS
        .iter()
        .find(|line| line.name == name || line.also.contains(&name))
        .ok_or_else(|| {
            let names: Vec<&str> = PROVIDERS.iter().map(|line| line.name).collect();
            format!(
                "no share of the tests is called '{name}'; there are: {}",
                names.join(", ")
            )
        })
}

/// Whose a test is.
pub fn owner(package: &str, target: &str, test: &str) -> Option<&'static Provider> {
    let (silos, _, stores) = SILOS;
    if package == silos {
        let module = test.split("::").next().unwrap_or_default();
        let name = if target == stores {
            module
        } else if target == SUITE {
            "program"
        } else {
            ""
        };
        return named(name).ok();
    }
    let mut lines = PROVIDERS
        .iter()
        .filter(|line| line.package == package)
        .peekable();
    let first = lines.peek().copied();
    let words = |line: &&Provider| {
        let mut names = line.also.iter().chain([&line.name]);
        names.any(|name| target.contains(name) || test.contains(name))
    };
    lines.find(words).or(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_has_one_owner() {
        let of = |package, target, test| owner(package, target, test).map(|line| line.name);
        assert_eq!(
            of("membership-redis", "conformance", "valkey"),
            Some("valkey")
        );
        assert_eq!(
            of("membership-redis", "conformance", "redis"),
            Some("redis")
        );
        assert_eq!(
            of("membership-redis", "cluster", "slots_move"),
            Some("redis")
        );
        assert_eq!(of("membership-sql", "mysql", "a_deadlock"), Some("mariadb"));
        assert_eq!(
            of("membership-sql", "trouble", "a_torn_file"),
            Some("sqlite")
        );
        assert_eq!(
            of(
                "membership-sql",
                "membership_sql",
                "postgres::schema::tests::it"
            ),
            Some("postgres")
        );
        assert_eq!(
            of("conformance-tests", "launch", "redis_lives"),
            Some("launcher")
        );
        assert_eq!(
            of("membership-cli", "stores", "mariadb::silos_come_and_go"),
            Some("mariadb")
        );
        assert_eq!(
            of(
                "membership-cli",
                "stores",
                "replica_set::the_primary_is_killed"
            ),
            Some("mongodb-set")
        );
        assert_eq!(
            of("membership-mongo", "conformance", "three_members"),
            Some("mongodb-set")
        );
        assert_eq!(
            of("membership-mongo", "servers", "refusals::it"),
            Some("mongodb")
        );
        assert_eq!(
            of("membership-cli", "stores", "ensemble::the_leader_is_killed"),
            Some("zookeeper-set")
        );
        assert_eq!(
            of("membership-zk", "conformance", "three_servers"),
            Some("zookeeper-set")
        );
        assert_eq!(
            of("membership-zk", "membership_zk", "url::tests::it"),
            Some("zookeeper")
        );
        assert_eq!(
            of(
                "membership-cli",
                "stores",
                "consul_servers::the_leader_is_killed"
            ),
            Some("consul-set")
        );
        assert_eq!(
            of("membership-consul", "conformance", "three_servers"),
            Some("consul-set")
        );
        assert_eq!(
            of("membership-consul", "servers", "tokens::it"),
            Some("consul")
        );
        assert_eq!(
            of(
                "membership-cli",
                "stores",
                "etcd_members::the_leader_is_killed"
            ),
            Some("etcd-set")
        );
        assert_eq!(
            of("membership-etcd", "conformance", "one_member"),
            Some("etcd")
        );
        assert_eq!(
            of("membership-etcd", "conformance", "three_members"),
            Some("etcd-set")
        );
        assert_eq!(
            of("membership-etcd", "servers", "members::it"),
            Some("etcd-set")
        );
        assert_eq!(of("membership-etcd", "servers", "users::it"), Some("etcd"));
        assert_eq!(
            of(
                "membership-etcd",
                "membership_etcd",
                "config::tests::members_have_addresses"
            ),
            Some("etcd")
        );
        assert_eq!(
            of("membership-cli", "conformance", "cases_can_be_chosen"),
            Some("program")
        );
        assert_eq!(of("membership-cli", "demo", "it"), None);
    }

    #[test]
    fn names_are_known_or_refused_with_a_list() {
        assert_eq!(named("mysql").map(|line| line.name), Ok("mariadb"));
        assert!(named("oracle").is_err_and(|text| text.contains("memory, sqlite, redis")));
    }
}
