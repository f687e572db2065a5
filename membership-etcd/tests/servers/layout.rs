//! The contents of etcd, and their handling where another program wrote them. Clauses T5, T9, T10,
//! T12.

use membership_core::{CommitOutcome, MembershipTable, ReadRequest, TableErrorKind, VersionToken};

use crate::support::shell::{Shell, base};
use crate::support::*;
use conformance_tests::helpers::*;

#[tokio::test]
async fn keys_are_where_the_readme_says() {
    let server = server(&[]).await;
    let (table, shell) = (
        connect(server.url()).await.unwrap(),
        Shell::of(server.url()).await.unwrap(),
    );
    let token = fill(&table, 2).await;
    table.update_i_am_alive(&heartbeat(1, 7)).await.unwrap();
    let mut request = insert(&token, [5]);
    request.core = Some("core's own".to_owned().into());
    commit(&table, &request).await;
    let names: Vec<String> = shell
        .all("membership/")
        .await
        .unwrap()
        .into_iter()
        .map(|(key, _)| key)
        .collect();
    let expected = [
        format!("heartbeats/{}", silo(1)),
        format!("rows/{}", silo(0)),
        format!("rows/{}", silo(1)),
        format!("rows/{}", silo(5)),
        "table/core".to_owned(),
        "table/recent/01".to_owned(),
        "table/recent/02".to_owned(),
        "table/settings".to_owned(),
        "table/version".to_owned(),
    ];
    assert_eq!(
        names,
        expected.map(|name| format!("membership/default~-blue/{name}"))
    );
    let version = shell
        .get("membership/default~-blue/table/version")
        .await
        .unwrap()
        .unwrap();
    assert!(
        version.starts_with("{\"layout\":1,\"min_layout\":1,\"table_id\":\"")
            && version.contains("\"version\":2,"),
        "{version}"
    );
    assert!(version.ends_with("\"row_count\":3}"), "{version}");
    // Foreign keys stay, below the cluster's name and beside it.
    shell
        .put("membership/default~-blue/notes", "mine")
        .await
        .unwrap();
    shell
        .put("membership/default~-blue2/rows/x", "other")
        .await
        .unwrap();
    assert_eq!(read(&table).await.0.rows.len(), 3);
    table.delete().await.unwrap();
    let left: Vec<String> = shell
        .all("membership/")
        .await
        .unwrap()
        .into_iter()
        .map(|(key, _)| key)
        .collect();
    assert_eq!(
        left,
        [
            "membership/default~-blue/notes",
            "membership/default~-blue2/rows/x"
        ]
    );
}

#[tokio::test]
async fn a_token_alone_suffices_to_commit_in_one_request() {
    let server = server(&[]).await;
    let table = connect(server.url()).await.unwrap();
    let mut token = fill(&table, 2).await;
    for n in 10..40 {
        // A handle that has read nothing: its token came with a message.
        let stranger = connect(server.url()).await.unwrap();
        let carried = VersionToken::from_bytes(&token.to_bytes()).unwrap();
        token = commit(&stranger, &insert(&carried, [n])).await;
        assert_eq!(read(&table).await.0.token, token);
    }
    let row = read(&table).await.0.version_row;
    assert_eq!((row.version, row.row_count, row.recent.len()), (31, 32, 16));
}

#[tokio::test]
async fn a_token_without_etcds_part_costs_one_request_more() {
    let server = server(&[]).await;
    let table = connect(server.url()).await.unwrap();
    let token = fill(&table, 2).await;
    let bare = |token: &VersionToken, store: &[u8]| {
        VersionToken::new(token.table_id(), token.version(), token.commit(), store)
    };
    for store in [&[][..], b"nonsense", &5000_u64.to_be_bytes(), &[7; 64]] {
        let stranger = connect(server.url()).await.unwrap();
        let token = read(&table).await.0.token;
        let made = commit(
            &stranger,
            &insert(&bare(&token, store), [unique() as u64 % 40_000 + 100]),
        )
        .await;
        assert_eq!(read(&table).await.0.token, made);
    }
    let stranger = connect(server.url()).await.unwrap();
    match stranger
        .commit(&insert(&bare(&token, &[]), [77]))
        .await
        .unwrap()
    {
        CommitOutcome::Conflict(conflict) => {
            assert_eq!(conflict.snapshot.unwrap(), read(&table).await.0)
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(
        commit_kind(&stranger, &insert(&unknown_token(), [77])).await,
        TableErrorKind::TableReplaced
    );
}

#[tokio::test]
async fn fields_of_a_newer_build_in_the_version_row_survive() {
    let server = server(&[]).await;
    let (table, shell) = (
        connect(server.url()).await.unwrap(),
        Shell::of(server.url()).await.unwrap(),
    );
    let token = fill(&table, 2).await;
    let key = format!("{}table/version", base(&blue()));
    let text = shell.get(&key).await.unwrap().unwrap();
    // In another order, with one more field, and with a layout that this build may still write.
    let newer = text.replacen(
        "{\"layout\":1,",
        "{\"moon\":{\"phase\":[1,2]},\"layout\":7,",
        1,
    );
    shell.put(&key, &newer).await.unwrap();
    // One handle that has read the earlier contents, one that has read nothing, and one that has
    // read the present contents.
    let token = commit(&table, &insert(&token, [10])).await;
    let token = commit(&connect(server.url()).await.unwrap(), &insert(&token, [11])).await;
    let reader = connect(server.url()).await.unwrap();
    read(&reader).await;
    commit(&reader, &insert(&token, [12])).await;
    let text = shell.get(&key).await.unwrap().unwrap();
    assert!(
        text.contains("\"moon\":{\"phase\":[1,2]}")
            && text.contains("\"layout\":7")
            && text.contains("\"row_count\":5"),
        "{text}"
    );
    assert_eq!(read(&table).await.0.version(), token.version() + 1);
}

#[tokio::test]
async fn a_row_removed_by_hand_is_reported() {
    let server = server(&[]).await;
    let (table, shell) = (
        connect(server.url()).await.unwrap(),
        Shell::of(server.url()).await.unwrap(),
    );
    let token = fill(&table, 3).await;
    shell
        .delete(&format!("{}rows/{}", base(&blue()), silo(1)))
        .await
        .unwrap();
    let error = connect(server.url())
        .await
        .unwrap()
        .read(&ReadRequest::all())
        .await
        .unwrap_err();
    assert!(
        error.kind() == TableErrorKind::Damaged && error.to_string().contains("1 of 3 rows"),
        "{error}"
    );
    // The loser of a conflict still gets it as a conflict, without an incomplete table.
    match table.commit(&update(&token, 1, "x")).await.unwrap() {
        CommitOutcome::Conflict(conflict) => assert_eq!(
            (conflict.newest.unwrap().version, conflict.snapshot),
            (1, None)
        ),
        other => panic!("{other:?}"),
    }
    table.delete().await.unwrap();
    fill(&table, 2).await;
}

#[tokio::test]
async fn a_row_that_exists_is_a_conflict_with_the_table() {
    let server = server(&[]).await;
    let table = connect(server.url()).await.unwrap();
    let token = fill(&table, 2).await;
    let before = read(&table).await;
    for table in [table.clone(), connect(server.url()).await.unwrap()] {
        for request in [
            insert(&token, [1, 9]),
            update(&token, 9, "x"),
            remove(&token, 9),
        ] {
            match table.commit(&request).await.unwrap() {
                CommitOutcome::Conflict(conflict) => {
                    assert_eq!(conflict.newest.as_ref(), before.0.version_row.recent.last());
                    assert_eq!(conflict.snapshot.unwrap(), before.0);
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(read(&table).await, before);
}
