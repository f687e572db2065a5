//! A server that was the primary, and answers nevertheless.

use conformance_tests::helpers::{commit as committed, silo};
use conformance_tests::proxy::Proxy;
use conformance_tests::servers::RawAccess as _;
use membership_core::{MembershipTable, ReadAnswer, ReadRequest};
use membership_sql::MysqlConfig;

use crate::support::{MariaDb, Raw};
use crate::{cluster, insert, made, open};

#[tokio::test(flavor = "multi_thread")]
async fn a_deposed_primary_is_left_once_its_answer_is_older_than_what_is_known() {
    let (former, new) = tokio::join!(MariaDb::start(""), MariaDb::start(""));
    // An address that always leads to the primary, for new connections.
    let address = Proxy::to(former.server.address()).unwrap();
    let here = former.server.address().to_string();
    let url = former.url().replace(&here, &address.address().to_string());
    let config = MysqlConfig::from_url(&url).unwrap();
    let (reads, token) = made(config.clone(), "deposed").await;
    let (rows, commits) = (
        open(config.clone(), "deposed").await.unwrap(),
        open(config, "deposed").await.unwrap(),
    );
    // One of the connections of `commits` writes.
    let token = committed(&commits, &insert(&token, 2)).await;
    let name = cluster("deposed");
    let mut from = Raw::open(former.server.url(), &name).await.unwrap();
    let mut to = Raw::open(new.server.url(), &name).await.unwrap();
    new.make_schema().await;
    to.restore(&from.save().await.unwrap()).await.unwrap();
    address.set_target(new.server.address());
    let other = open(new.config(), "deposed").await.unwrap();
    let newer = committed(&other, &insert(&token, 3)).await;
    // The clients still use the former primary, and hear of the new commit from another silo.
    let known = |token| ReadRequest::all().with_known(Some(token));
    let old = reads.read(&known(token)).await.unwrap();
    assert!(matches!(old, ReadAnswer::Unchanged { .. }), "{old:?}");
    let seen = reads.read(&known(newer.clone())).await.unwrap();
    assert!(matches!(seen, ReadAnswer::Unchanged { .. }), "{seen:?}");
    let row = rows.read_row(&silo(3), Some(&newer)).await.unwrap();
    assert!(row.row.is_some() && row.token == newer);
    let next = committed(&commits, &insert(&newer, 4)).await;
    // Later operations use the new connections.
    let later = reads.read(&known(next)).await.unwrap();
    assert!(matches!(later, ReadAnswer::Unchanged { .. }), "{later:?}");
}
