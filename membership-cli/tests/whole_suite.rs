//! `membership conformance` with every case over one server of each kind, as somebody runs it who has
//! an address and nothing else. Minutes for each: `.ci/run nightly` runs them.
#![cfg(all(feature = "conformance", feature = "redis"))]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "helpers of tests"
)]

mod support;

use std::collections::BTreeSet;

use conformance_tests::Reason::{self, NoHints, NoSecret, SecondRoundTrip};
use membership_testbed::{Kind, LaunchError, Options, Server};
use serde_json::Value;
use support::Place;

const SECRET: &str = "correct-horse-battery-staple";

/// Runs every case over a server of this kind. A case that is not applicable needs more than an
/// address: it stops, freezes or empties the server, changes it past the contract, or has a second user;
/// or this store never has what it is about.
fn keeps_the_contract(kind: Kind, password: Option<&str>, reasons: &[Reason]) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let options = Options {
        password: password.map(str::to_owned),
        durable: true,
        ..Options::default()
    };
    let server = match runtime.block_on(Server::start(kind, options)) {
        Err(LaunchError::External { .. }) => {
            eprintln!("not applicable: the server is external");
            return;
        }
        server => server.unwrap(),
    };
    let place = Place::at(server.url(), "default");
    let line = ["conformance", "--json", "--effort=quick", "--cluster=try"];
    let ran = place.run(&line).expect(0);
    let lines = ran.out.lines();
    let lines: Vec<Value> = lines.map(|l| serde_json::from_str(l).unwrap()).collect();
    let (summary, cases) = lines.split_last().unwrap();
    // The program requires no more of a store than every store has.
    let always = [Reason::OnlyAddress, Reason::NotGuaranteed];
    let allowed = always.iter().chain(reasons);
    let allowed: BTreeSet<_> = allowed.map(ToString::to_string).collect();
    let not_applicable = cases.iter().filter(|c| c["outcome"] == "not_applicable");
    let mut others = BTreeSet::new();
    for case in not_applicable {
        let why = case["why"].as_str().unwrap();
        eprintln!("{kind}: {}: {why}", case["name"]);
        if !allowed.contains(why) {
            others.insert((case["name"].to_string(), why.to_owned()));
        }
    }
    eprintln!("{kind}: {summary}");
    assert_eq!(others, BTreeSet::new(), "{kind}");
    assert_eq!(
        (&summary["failed"], &summary["left_behind"]),
        (&0.into(), &Value::Array(Vec::new()))
    );
}

/// The tests, each in a module that has the name of its store.
macro_rules! every_case {
    ($($store:ident, $feature:literal, $kind:ident, $password:expr, $reasons:expr;)+) => {
        $(
            #[cfg(feature = $feature)]
            mod $store {
                use super::*;

                #[test]
                #[ignore = "minutes: .ci/run nightly runs it"]
                fn every_case_by_its_address() {
                    keeps_the_contract(Kind::$kind, $password, &$reasons);
                }
            }
        )+
    };
}

every_case! {
    redis, "redis", Redis, Some(SECRET), [];
    valkey, "redis", Valkey, Some(SECRET), [];
    postgres, "postgres", Postgres, Some(SECRET), [];
    mariadb, "mysql", MariaDb, Some(SECRET), [NoHints];
    etcd, "etcd", Etcd, Some(SECRET), [];
    consul, "consul", Consul, Some(SECRET), [];
    zookeeper, "zk", ZooKeeper, Some(SECRET), [];
    mongodb, "mongodb", MongoDb, Some(SECRET), [NoHints, SecondRoundTrip];
    nats, "nats", Nats, Some(SECRET), [NoHints, SecondRoundTrip];
    cassandra, "cassandra", Cassandra, None, [NoSecret, NoHints, SecondRoundTrip];
    dynamodb, "dynamodb", DynamoDb, None, [NoSecret, NoHints, SecondRoundTrip];
    azurite, "azure-table", Azurite, None, [NoSecret, NoHints];
}
