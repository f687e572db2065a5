//! Five real silos over each store: silos come and go, and then the store's server fails.
//!
//! A store's tests are compiled with the program's feature for it, and start the servers that they
//! need by themselves: `cargo test -p membership-cli --features redis --test stores redis::`
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "helpers of tests"
)]

#[cfg(feature = "redis")]
#[allow(dead_code, reason = "the tests of a silo's own server use all of it")]
#[path = "../http/client.rs"]
mod client;
#[allow(
    dead_code,
    reason = "a build without a store in a network uses nothing of it"
)]
mod frozen;
#[allow(dead_code, reason = "only stores that announce changes are asked")]
mod hints;
#[allow(
    dead_code,
    reason = "a build without a store in a network uses nothing of it"
)]
mod leader;
#[allow(
    dead_code,
    reason = "a build without a store in a network uses nothing of it"
)]
mod outages;
/// What the program shows, over one of the stores.
#[cfg(feature = "redis")]
mod program;
#[allow(dead_code, reason = "only stores that keep such heartbeats are asked")]
mod rowless;
mod scenarios;
#[allow(
    dead_code,
    reason = "a build without a store in a network uses nothing of it"
)]
mod store;
#[path = "../support/mod.rs"]
mod support;

/// The tests of one kind of server.
macro_rules! tests_over {
    ($($store:ident, $feature:literal, $kind:ident $(, $hints:ident)?;)+) => {
        $(
            #[cfg(feature = $feature)]
            mod $store {
                use membership_testbed::Kind;

                use super::{outages, scenarios, store::Store};

                #[test]
                fn silos_come_and_go() {
                    let store = Store::start(Kind::$kind);
                    scenarios::silos_come_and_go(store.place("come-and-go"));
                }

                $(
                    #[test]
                    fn views_follow_hints() {
                        super::$hints::views_follow_hints(&Store::start(Kind::$kind));
                    }
                )?

                #[test]
                fn the_server_is_killed_and_started_again() {
                    Store::start(Kind::$kind).under(outages::the_server_is_killed_and_started_again);
                }

                #[test]
                #[ignore = "several minutes: cargo xtask soak runs it"]
                fn the_server_is_killed_twenty_times_in_a_row() {
                    Store::start(Kind::$kind).under(outages::the_server_is_killed_twenty_times_in_a_row);
                }

                #[test]
                fn the_server_is_frozen_for_half_a_minute() {
                    Store::start(Kind::$kind).under(outages::the_server_is_frozen_for_half_a_minute);
                }

                #[test]
                fn the_server_comes_back_empty() {
                    Store::start(Kind::$kind).under(outages::the_server_comes_back_empty);
                }
            }
        )+
    };
}

tests_over! {
    redis, "redis", Redis, hints;
    valkey, "redis", Valkey;
    postgres, "postgres", Postgres, hints;
    mariadb, "mysql", MariaDb;
    dynamodb, "dynamodb", DynamoDb;
    azurite, "azure-table", Azurite;
    consul, "consul", Consul, hints;
    mongodb, "mongodb", MongoDb;
    cassandra_silos, "cassandra", Cassandra;
    zookeeper, "zk", ZooKeeper, hints;
    etcd, "etcd", Etcd, hints;
    nats, "nats", Nats;
}

/// The tests of stores that keep the heartbeat of a silo without a row.
macro_rules! tests_of_rowless {
    ($($module:ident, $feature:literal, $kind:ident;)+) => {
        $(
            #[cfg(feature = $feature)]
            mod $module {
                use membership_testbed::Kind;

                use super::{rowless, store::Store};

                #[test]
                fn doctor_names_a_late_heartbeat() {
                    rowless::doctor_names_a_late_heartbeat(&Store::start(Kind::$kind));
                }
            }
        )+
    };
}

tests_of_rowless! {
    mongodb_heartbeats, "mongodb", MongoDb;
    nats_heartbeats, "nats", Nats;
}

/// The tests of three servers of one kind whose leader is killed.
macro_rules! tests_over_three {
    ($($module:ident, $feature:literal, $kind:ident;)+) => {
        $(
            #[cfg(feature = $feature)]
            mod $module {
                use membership_testbed::Kind;

                use super::leader::the_leader_is_killed;

                #[test]
                fn the_leader_is_killed_and_another_one_takes_over() {
                    the_leader_is_killed(Kind::$kind, 1);
                }

                #[test]
                #[ignore = "several minutes: cargo xtask soak runs it"]
                fn the_leader_is_killed_twenty_times_in_a_row() {
                    the_leader_is_killed(Kind::$kind, 20);
                }
            }
        )+
    };
}

tests_over_three! {
    consul_servers, "consul", Consul;
    ensemble, "zk", ZooKeeper;
    etcd_members, "etcd", Etcd;
    replica_set, "mongodb", MongoDb;
}

/// The tests of servers whose leader is frozen until another one leads, and how they are started.
macro_rules! tests_over_successors {
    ($($module:ident, $feature:literal, $promise:ident, $start:ident $(, $kind:ident)?;)+) => {
        $(
            #[cfg(feature = $feature)]
            mod $module {
                use super::frozen::{$promise, $start, the_leader_is_frozen};

                #[test]
                fn the_leader_is_frozen_until_another_one_leads() {
                    let servers = $start($(membership_testbed::Kind::$kind)?);
                    the_leader_is_frozen(stringify!($module), servers, $promise, 1);
                }

                #[test]
                #[ignore = "several minutes: .ci/run nightly runs it, and cargo xtask soak"]
                fn the_leader_is_frozen_twenty_times_in_a_row() {
                    let servers = $start($(membership_testbed::Kind::$kind)?);
                    the_leader_is_frozen(stringify!($module), servers, $promise, 20);
                }
            }
        )+
    };
}

tests_over_successors! {
    cassandra_nodes, "cassandra", STRONG, three, Cassandra;
    consul_successors, "consul", STRONG, three, Consul;
    ensemble_successors, "zk", MONOTONIC, three, ZooKeeper;
    etcd_successors, "etcd", STRONG, three, Etcd;
    replica_set_successors, "mongodb", STRONG, three, MongoDb;
    sentinel, "redis", WEAK, watched;
    standby, "postgres", MONOTONIC, pair;
}

/// More silos than PostgreSQL takes connections by default: each has up to two.
#[cfg(feature = "postgres")]
mod postgres_crowd {
    use membership_testbed::{Kind, Options};

    use super::{store::Store, support::crowd};

    #[test]
    #[ignore = "starts a hundred processes: .ci/run nightly runs it"]
    fn many_start_at_once_and_their_scribe_is_killed() {
        let args = vec!["-c".to_owned(), "max_connections=500".to_owned()];
        let options = Options {
            args,
            ..Options::default()
        };
        let store = Store::start_with(Kind::Postgres, options);
        crowd::starts_at_once_and_its_scribe_is_killed(&store.place("crowd"));
    }
}

/// The SQLite file, which needs no server: silos come and go.
#[cfg(feature = "sqlite")]
mod sqlite {
    use super::{scenarios, support::Place};

    #[test]
    fn silos_come_and_go() {
        scenarios::silos_come_and_go(Place::new());
    }
}
