//! Which entities a read asks for: the fewer the service has to look at, the less a read costs.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use azure_core::http::{AsyncRawResponse, HttpClient, Request, Transport};
use conformance_tests::helpers::{commit, fill, heartbeat, insert, read, silo, update};
use membership_azure::{AzureTable, AzureTableConfig};
use membership_core::{MembershipTable, ReadAnswer, ReadRequest, TableErrorKind};

use crate::support::server;
use crate::support::shell::Shell;
use crate::trouble::cluster;

/// Sends requests, and keeps the filters of queries.
#[derive(Debug, Default)]
struct Filters(reqwest::Client, Mutex<Vec<String>>);

#[async_trait]
impl HttpClient for Filters {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let mut query = request.url().query_pairs();
        let filter = query.find(|(name, _)| name == "$filter");
        self.1
            .lock()
            .unwrap()
            .extend(filter.map(|(_, filter)| filter.into_owned()));
        self.0.execute_request(request).await
    }
}

impl Filters {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.1.lock().unwrap())
    }
}

/// The service reads one range of a partition at once, and scans the whole partition for several.
#[tokio::test]
async fn a_quiet_read_reads_one_range() {
    let server = server().await;
    let blue = cluster("quiet");
    let filters = Arc::new(Filters::default());
    let config = AzureTableConfig::from_url(server.url()).unwrap();
    let config = config.transport(Transport::new(filters.clone()));
    let table = AzureTable::connect(config, blue.clone()).await.unwrap();
    let token = fill(&table, 4).await;
    table.update_i_am_alive(&heartbeat(1, 7)).await.unwrap();
    // One handle that has read the table, and one that has not.
    let other = AzureTableConfig::from_url(server.url()).unwrap();
    let other = other.transport(Transport::new(filters.clone()));
    let other = AzureTable::connect(other, blue.clone()).await.unwrap();
    let (snapshot, _) = read(&table).await;
    assert_eq!(snapshot.token, token);
    for table in [&table, &other] {
        for wanted in [true, false] {
            filters.take();
            let known = ReadRequest::all().with_known(token.clone());
            let answer = table.read(&known.with_heartbeats(wanted)).await.unwrap();
            let ReadAnswer::Unchanged { heartbeats } = answer else {
                panic!("{answer:?}");
            };
            assert_eq!(heartbeats.is_some(), wanted);
            let beat = heartbeats.and_then(|all| all.silos.get(&silo(1)).copied());
            assert_eq!(beat.map(|beat| beat.counter), wanted.then_some(7));
            let asked = filters.take();
            let [filter] = asked.as_slice() else {
                panic!("{asked:?}");
            };
            assert!(!filter.contains(" or "), "{filter}");
            assert_eq!(filter.contains("RowKey eq '!version'"), !wanted, "{filter}");
        }
    }
    // What changed comes with a second request, and the heartbeats are those of the first.
    let next = commit(&other, &update(&token, 2, "x")).await;
    filters.take();
    let known = ReadRequest::all().with_known(token);
    match table.read(&known).await.unwrap() {
        ReadAnswer::Snapshot {
            snapshot,
            heartbeats,
        } => {
            assert_eq!(snapshot.token, next);
            let beat = heartbeats.unwrap().silos[&silo(1)];
            assert_eq!(beat.counter, 7);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(filters.take().len(), 2);
    table.delete().await.unwrap();
}

/// The heartbeats alone are more than a page.
#[tokio::test]
async fn rows_after_pages_of_heartbeats_are_found() {
    let server = server().await;
    let blue = cluster("pages");
    let table = crate::trouble::table(server.url(), &blue).await;
    let mut token = fill(&table, 0).await;
    let rows = 1_029;
    for first in (0..rows).step_by(49) {
        token = commit(&table, &insert(&token, first..first + 49)).await;
    }
    for heartbeats in [true, false] {
        let fresh = crate::trouble::table(server.url(), &blue).await;
        let all = ReadRequest::all().with_heartbeats(heartbeats);
        match fresh.read(&all).await.unwrap() {
            ReadAnswer::Snapshot { snapshot, .. } => {
                assert_eq!(
                    (&snapshot.token, snapshot.rows.len() as u64),
                    (&token, rows)
                );
            }
            other => panic!("{other:?}"),
        }
    }
    // Without the version row it is damaged, however far the first row is.
    let shell = Shell::of(server.url(), &blue).unwrap();
    shell.delete("!version").await.unwrap();
    let fresh = crate::trouble::table(server.url(), &blue).await;
    let error = fresh.read(&ReadRequest::all()).await.unwrap_err();
    assert_eq!(error.kind(), TableErrorKind::Damaged, "{error}");
    let error = conformance_tests::helpers::initialize(&fresh)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), TableErrorKind::Damaged, "{error}");
    fresh.delete().await.unwrap();
}
