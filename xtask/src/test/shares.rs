//! Which tests belong to which share: one line per store, and the only place to add one.

use std::collections::BTreeSet;

use membership_testbed::Kind;

/// The tests of one store, or of one set-up of it.
#[derive(Debug)]
pub struct Share {
    /// Its name on the command line.
    pub name: &'static str,
    /// Other names. A test belongs to the share whose name, or other name, is part of its target or
    /// path.
    pub also: &'static [&'static str],
    /// The package with its tests. Tests that name no share belong to the package's first one.
    pub package: &'static str,
    /// The server it needs.
    pub server: Option<Kind>,
    /// Whether a plain `cargo test` runs its tests.
    pub by_default: bool,
    /// How long it takes on two cores beside others, in seconds: the longest start first.
    pub seconds: u64,
    /// Whether its server needs most of a core. Of such shares one runs at a time, as long as any waits.
    pub heavy: bool,
    /// How many lanes it takes where there are more than two: more than one if its server needs more
    /// than a core.
    pub lanes: u64,
}

const SHARE: Share = Share {
    name: "",
    also: &[],
    package: "",
    server: None,
    by_default: false,
    seconds: 60,
    heavy: false,
    lanes: 1,
};

/// The share of a store in a network.
const fn store(
    name: &'static str,
    also: &'static [&'static str],
    package: &'static str,
    server: Kind,
    seconds: u64,
) -> Share {
    Share {
        name,
        also,
        package,
        server: Some(server),
        seconds,
        ..SHARE
    }
}

/// A share that needs no server.
const fn plain(name: &'static str, package: &'static str, seconds: u64) -> Share {
    Share {
        name,
        package,
        seconds,
        ..SHARE
    }
}

const fn heavy(share: Share) -> Share {
    Share {
        heavy: true,
        ..share
    }
}

const fn by_default(share: Share) -> Share {
    Share {
        by_default: true,
        ..share
    }
}

/// All of them. [`owner`] says which tests belong to which share.
pub const SHARES: &[Share] = &[
    by_default(plain("memory", "conformance-tests", 20)),
    by_default(plain("fault-proxy", "membership-fault-proxy", 10)),
    plain("provider", "membership-provider", 5),
    plain("fuzz", "membership-fuzz", 15),
    by_default(plain("sqlite", "membership-sql", 60)),
    // With a master and a replica whose sentinel lets the replica take over.
    store("redis", &["sentinel"], "membership-redis", Kind::Redis, 210),
    store("valkey", &[], "membership-redis", Kind::Valkey, 120),
    store(
        "postgres",
        &["standby"],
        "membership-sql",
        Kind::Postgres,
        210,
    ),
    store("mariadb", &["mysql"], "membership-sql", Kind::MariaDb, 140),
    heavy(store(
        "dynamodb",
        &["dynamo"],
        "membership-dynamo",
        Kind::DynamoDb,
        230,
    )),
    store(
        "azure-table",
        &["azure", "azurite"],
        "membership-azure",
        Kind::Azurite,
        175,
    ),
    Share {
        lanes: 2,
        ..heavy(store(
            "cassandra",
            &["scylla"],
            "membership-cassandra",
            Kind::Cassandra,
            250,
        ))
    },
    // Real silos over it: the server is started many times, and each start takes 20 s.
    heavy(store(
        "cassandra-silos",
        &["cassandra_silos"],
        "membership-cassandra",
        Kind::Cassandra,
        80,
    )),
    store(
        "mongodb",
        &["mongo"],
        "membership-mongo",
        Kind::MongoDb,
        185,
    ),
    // Three members, whose primary is killed: another set-up of the same store, like Valkey for
    // Redis.
    heavy(store(
        "mongodb-set",
        &["three_members", "replica_set", "replica_set_successors"],
        "membership-mongo",
        Kind::MongoDb,
        240,
    )),
    store("etcd", &[], "membership-etcd", Kind::Etcd, 155),
    // Three members, whose leader is killed.
    store(
        "etcd-set",
        &["members", "etcd_members", "etcd_successors"],
        "membership-etcd",
        Kind::Etcd,
        120,
    ),
    store("nats", &[], "membership-nats", Kind::Nats, 170),
    // Three servers, whose leader is killed and frozen.
    store(
        "nats-set",
        &["three_servers"],
        "membership-nats",
        Kind::Nats,
        240,
    ),
    store("zookeeper", &["zk"], "membership-zk", Kind::ZooKeeper, 170),
    // Three servers, whose leader is killed.
    store(
        "zookeeper-set",
        &["three_servers", "ensemble", "ensemble_successors"],
        "membership-zk",
        Kind::ZooKeeper,
        105,
    ),
    store("consul", &[], "membership-consul", Kind::Consul, 170),
    // Three servers, whose leader is killed.
    store(
        "consul-set",
        &[
            "consul_servers",
            "three_servers",
            "several",
            "consul_successors",
        ],
        "membership-consul",
        Kind::Consul,
        170,
    ),
    // The other shares belong to no store: the launcher of the servers, the example of a provider,
    // this program, the library's optional features, and the command that runs the suite, over a
    // file and over one server.
    Share {
        also: &["launch"],
        ..plain("launcher", "membership-testbed", 105)
    },
    // The page in a real browser, which installs itself as servers do.
    plain("browser", "membership-page-tests", 40),
    plain("toy", "membership-toy", 45),
    plain("toy-store", "toy-store", 5),
    plain("xtask", "xtask", 95),
    plain("library", LIBRARY, 25),
    Share {
        server: Some(Kind::Redis),
        ..plain("program", PROGRAM, 40)
    },
];

/// The package whose unit tests run again with all features, metrics among them, and its tests of
/// connection strings with all stores and of HTTP.
pub const LIBRARY: &str = "silo-membership";

/// The library's test of connection strings, and that of its feature `http`.
const CONNECT: &str = "connect";
const HTTP: &str = "http";

/// The package whose test `stores` runs real silos over every store: the name of a test's module
/// there is the name of the store.
pub const PROGRAM: &str = "membership-cli";

/// The test of real silos over every store.
pub const STORES: &str = "stores";

/// The test of the command that runs the suite; also the name of its module.
const SUITE: &str = "conformance";

/// The unit tests of the program.
pub const UNITS: &str = "membership_cli";

/// The test of the commands over a table, and those of its tests that see more with all stores.
pub const COMMANDS: &str = "table_commands";
pub const WITH_ALL_STORES: [&str; 2] = [
    "a_store_that_is_not_there_or_not_built_in_shows_no_password",
    "the_schema_is_printed_where_there_is_one",
];

/// Packages whose tests a plain `cargo test` has run in full, because features change nothing about
/// them.
pub const BY_DEFAULT: &[&str] = &["membership-core", "membership-sim", "membership-testing"];

/// Whether an integration test of a package belongs to any share.
pub fn is_chosen(package: &str, target: &str) -> bool {
    match package {
        LIBRARY => [CONNECT, HTTP].contains(&target),
        PROGRAM => [STORES, SUITE, COMMANDS].contains(&target),
        package => SHARES.iter().any(|share| share.package == package),
    }
}

/// The share of that name.
pub fn named(name: &str) -> Result<&'static Share, String> {
    SHARES
        .iter()
        .find(|share| share.name == name || share.also.contains(&name))
        .ok_or_else(|| {
            let names: Vec<&str> = SHARES.iter().map(|share| share.name).collect();
            format!(
                "no share of the tests is called '{name}'; there are: {}",
                names.join(", ")
            )
        })
}

/// The modules of the test of real silos that have the name of no share, so that nothing runs them.
pub fn strays<'a>(tests: impl IntoIterator<Item = &'a str>) -> BTreeSet<&'a str> {
    let modules = tests.into_iter().filter_map(|test| test.split_once("::"));
    let unknown = modules.filter(|(module, _)| named(module).is_err());
    unknown.map(|(module, _)| module).collect()
}

/// The share that a test belongs to.
pub fn owner(package: &str, target: &str, test: &str) -> Option<&'static Share> {
    if package == PROGRAM {
        let module = test.split("::").next().unwrap_or_default();
        let name = match target {
            STORES => module,
            SUITE => "program",
            // Its unit tests, which a plain `cargo test` does not compile.
            UNITS if module == SUITE => "program",
            COMMANDS if WITH_ALL_STORES.contains(&test) => "program",
            _ => "",
        };
        return named(name).ok();
    }
    let mut shares = SHARES
        .iter()
        .filter(|share| share.package == package)
        .peekable();
    let first = shares.peek().copied();
    let is_named = |share: &&Share| {
        let mut names = share.also.iter().chain([&share.name]);
        names.any(|name| target.contains(name) || test.contains(name))
    };
    shares.find(is_named).or(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_all_features_compile_is_run() {
        let of = |package, target, test| owner(package, target, test).map(|share| share.name);
        assert!(is_chosen(LIBRARY, CONNECT) && !is_chosen(LIBRARY, "tables"));
        assert_eq!(of(LIBRARY, CONNECT, "errors_of_redis"), Some("library"));
        let root = crate::root();
        let commands = root.join("membership-cli/tests/table_commands.rs");
        let commands = std::fs::read_to_string(commands).unwrap();
        for test in WITH_ALL_STORES {
            assert!(commands.contains(&format!("fn {test}()")), "{test}");
            assert_eq!(of(PROGRAM, COMMANDS, test), Some("program"));
        }
        assert_eq!(of(PROGRAM, COMMANDS, "silos_are_listed"), None);
    }

    #[test]
    fn a_module_of_silos_over_a_store_has_the_name_of_a_share() {
        let root = crate::root().join("membership-cli/tests/stores/main.rs");
        let text = std::fs::read_to_string(root).unwrap();
        let lines = text.lines().map(str::trim).filter_map(|line| {
            let (module, rest) = line.strip_suffix(';')?.split_once(", \"")?;
            rest.contains("\", ").then_some(format!("{module}::it"))
        });
        let tests: Vec<String> = lines.collect();
        assert!(tests.len() >= 15, "{tests:?}");
        assert!(strays(tests.iter().map(String::as_str)).is_empty());
        let strays = strays(["redis::it", "mystore::one", "mystore::two", "free"]);
        assert_eq!(strays.into_iter().collect::<Vec<_>>(), ["mystore"]);
    }

    #[test]
    fn every_test_has_one_owner() {
        let of = |package, target, test| owner(package, target, test).map(|share| share.name);
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
            of("membership-testbed", "launch", "redis_lives"),
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
                "replica_set::the_leader_is_killed"
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
        assert_eq!(
            of("membership-cassandra", "servers", "trouble::it"),
            Some("cassandra")
        );
        assert_eq!(
            of(
                "membership-cli",
                "stores",
                "cassandra_silos::silos_come_and_go"
            ),
            Some("cassandra-silos")
        );
        assert_eq!(of("membership-cli", "demo", "it"), None);
    }

    /// A package that neither list names would have tests that nothing runs.
    #[test]
    fn every_package_with_tests_has_a_share_or_is_tested_by_default() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let text = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
        let list = |name: &str| {
            let after = text.split(&format!("\n{name} = [")).nth(1).unwrap();
            let list = after.split(']').next().unwrap();
            let folders = list.split(',').map(|one| one.trim().trim_matches('"'));
            folders
                .filter(|one| !one.is_empty())
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let by_default = list("default-members");
        for folder in list("members") {
            let manifest = root.join(&folder).join("Cargo.toml");
            let manifest = std::fs::read_to_string(manifest).unwrap();
            let name = manifest.split("name = \"").nth(1).unwrap();
            let name = name.split('"').next().unwrap();
            let has_share = SHARES.iter().any(|share| share.package == name);
            // The examples in documents are doc tests.
            assert!(
                has_share || by_default.contains(&folder) || name == "membership-documents",
                "nothing runs the tests of {name}"
            );
        }
    }

    #[test]
    fn names_are_known_or_refused_with_a_list() {
        assert_eq!(named("mysql").map(|share| share.name), Ok("mariadb"));
        assert!(named("oracle").is_err_and(|text| text.contains("sqlite, redis, valkey")));
    }
}
