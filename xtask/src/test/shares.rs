//! Which tests belong to which share. The crates of providers name theirs in their Cargo.toml; those
//! of no provider are here.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use membership_testbed::Kind;

use crate::providers;

/// The tests of one store, or of one set-up of it.
#[derive(Debug)]
pub struct Share {
    /// Its name on the command line.
    pub name: &'static str,
    /// Other names. A test belongs to the share whose name, or other name, is part of its target or
    /// path.
    pub also: Vec<&'static str>,
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
    /// Whether a quick run leaves it out: another set-up of a store that has a share of its own.
    pub nightly: bool,
    /// How many lanes it takes where there are more than two: more than one if its server needs more
    /// than a core.
    pub lanes: u64,
}

const SHARE: Share = Share {
    name: "",
    also: Vec::new(),
    package: "",
    server: None,
    by_default: false,
    seconds: 60,
    heavy: false,
    nightly: false,
    lanes: 1,
};

/// A share that needs no server.
fn plain(name: &'static str, package: &'static str, seconds: u64) -> Share {
    Share {
        name,
        package,
        seconds,
        ..SHARE
    }
}

fn by_default(share: Share) -> Share {
    Share {
        by_default: true,
        ..share
    }
}

/// All of them. [`owner`] says which tests belong to which share.
pub fn shares() -> &'static [Share] {
    static ALL: OnceLock<Vec<Share>> = OnceLock::new();
    ALL.get_or_init(|| {
        let of = |it: &'static providers::Manifest| it.shares.iter().map(move |one| share(it, one));
        let of_providers = providers::all().iter().flat_map(of);
        first()
            .into_iter()
            .chain(of_providers)
            .chain(last())
            .collect()
    })
}

/// A share of a provider's crate.
fn share(of: &'static providers::Manifest, share: &'static providers::Share) -> Share {
    let server = share.server.as_deref();
    Share {
        name: &share.name,
        also: share.also.iter().map(String::as_str).collect(),
        package: &of.package,
        server: server.and_then(|name| name.parse().ok()),
        by_default: share.by_default,
        seconds: share.seconds,
        heavy: share.heavy,
        nightly: share.nightly,
        lanes: share.lanes,
    }
}

/// What all providers build on.
fn first() -> Vec<Share> {
    vec![
        by_default(plain("memory", "conformance-tests", 20)),
        by_default(plain("fault-proxy", "membership-fault-proxy", 10)),
        plain("provider", "membership-provider", 5),
        plain("fuzz", "membership-fuzz", 15),
    ]
}

/// What belongs to no store: the launcher of the servers, the example of a provider, this program,
/// the library's optional features, and the command that runs the suite, over a file and over one
/// server.
fn last() -> Vec<Share> {
    vec![
        Share {
            also: vec!["launch"],
            ..plain("launcher", "membership-testbed", 105)
        },
        // The page in a real browser, which installs itself as servers do.
        plain("browser", "membership-page-tests", 40),
        plain("toy", "membership-toy", 45),
        plain("toy-store", "toy-store", 5),
        plain("xtask", "xtask", 200),
        plain("library", LIBRARY, 25),
        Share {
            server: Some(Kind::Redis),
            ..plain("program", PROGRAM, 70)
        },
    ]
}

/// The package whose unit tests run again with all features, metrics among them, and its tests of
/// connection strings with all stores and of HTTP.
pub const LIBRARY: &str = "silo-membership";

/// The library's test of connection strings, and those of its features `http` and `gossip`; the latter is one of the program, too.
const CONNECT: &str = "connect";
const HTTP: &str = "http";
const GOSSIP: &str = "gossip";

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
pub const BY_DEFAULT: &[&str] = &[
    "membership-core",
    "membership-gossip",
    "membership-sim",
    "membership-testing",
];

/// Whether an integration test of a package belongs to any share.
pub fn is_chosen(package: &str, target: &str) -> bool {
    match package {
        LIBRARY => [CONNECT, HTTP, GOSSIP].contains(&target),
        PROGRAM => [STORES, SUITE, COMMANDS, GOSSIP].contains(&target),
        package => shares().iter().any(|share| share.package == package),
    }
}

/// The share of that name.
pub fn named(name: &str) -> Result<&'static Share, String> {
    shares()
        .iter()
        .find(|share| share.name == name || share.also.contains(&name))
        .ok_or_else(|| {
            let names: Vec<&str> = shares().iter().map(|share| share.name).collect();
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
            SUITE | GOSSIP => "program",
            // Its unit tests, which a plain `cargo test` does not compile.
            UNITS if module == SUITE => "program",
            COMMANDS if WITH_ALL_STORES.contains(&test) => "program",
            _ => "",
        };
        return named(name).ok();
    }
    let mut shares = shares()
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
        let of_macros = text.lines().map(str::trim).filter_map(|line| {
            let (module, rest) = line.strip_suffix(';')?.split_once(", \"")?;
            rest.contains("\", ").then_some(format!("{module}::it"))
        });
        let written = text.lines().filter_map(|line| {
            let module = line.strip_prefix("mod ")?.strip_suffix(" {")?;
            Some(format!("{module}::it"))
        });
        let tests: Vec<String> = of_macros.chain(written).collect();
        assert!(tests.len() >= 17, "{tests:?}");
        assert!(tests.iter().any(|test| test == "postgres_crowd::it"));
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
        let inside = |pattern: &str, folder: &str| match pattern.strip_suffix('*') {
            Some(begin) => folder.starts_with(begin),
            None => folder == pattern,
        };
        let members = list("members");
        let folders = std::fs::read_dir(&root).unwrap();
        let folders = folders.map(|it| it.unwrap().file_name().to_string_lossy().into_owned());
        let all: BTreeSet<String> = folders
            .filter(|folder| members.iter().any(|it| inside(it, folder)))
            .chain(members.iter().filter(|it| it.contains('/')).cloned())
            .collect();
        assert!(all.contains("membership-nats") && all.contains("examples/traces"));
        for folder in all {
            let manifest = root.join(&folder).join("Cargo.toml");
            let manifest = std::fs::read_to_string(manifest).unwrap();
            let name = manifest.split("name = \"").nth(1).unwrap();
            let name = name.split('"').next().unwrap();
            let has_share = shares().iter().any(|share| share.package == name);
            // The examples in documents are doc tests.
            assert!(
                has_share || by_default.contains(&folder) || name == "membership-documents",
                "nothing runs the tests of {name}"
            );
        }
    }

    #[test]
    fn every_share_of_a_provider_has_a_server_that_the_launcher_knows_or_none() {
        for it in providers::all().iter().flat_map(|it| &it.shares) {
            let known = it.server.as_deref().map(str::parse::<Kind>);
            assert!(known.is_none_or(|kind| kind.is_ok()), "{it:?}");
        }
    }

    #[test]
    fn names_are_known_or_refused_with_a_list() {
        assert_eq!(named("mysql").map(|share| share.name), Ok("mariadb"));
        assert!(named("oracle").is_err_and(|text| text.contains("redis, valkey, sqlite")));
    }
}
