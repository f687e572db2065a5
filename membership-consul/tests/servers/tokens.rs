//! Permissions of tokens: clauses T4, T13 and T15.

use membership_consul::{ConsulConfig, ConsulTable};
use membership_core::{MembershipTable, ReadRequest, TableErrorKind};
use reqwest::Method;
use serde_json::Value;

use crate::support::shell::{Shell, token};
use crate::support::*;
use conformance_tests::helpers::*;

#[tokio::test]
async fn the_policy_of_the_readme_is_sufficient_and_necessary() {
    let server = server().await;
    let shell = Shell::of(server.url());
    let address = server.address();
    let config = |token: &str| ConsulConfig::new([address.to_string()]).token(token);

    let enough = token(&shell, "silos", &config("").schema()).await;
    let table = ConsulTable::connect(config(&enough), blue()).await.unwrap();
    let at = fill(&table, 3).await;
    table.update_i_am_alive(&heartbeat(1, 1)).await.unwrap();
    let at = commit(&table, &remove(&at, 2)).await;
    assert_eq!(
        table
            .read_row(&silo(1), Some(&at))
            .await
            .unwrap()
            .heartbeat
            .unwrap()
            .counter,
        1
    );

    // A token without any permission here gets an error, and not an empty table.
    for nobody in [
        token(
            &shell,
            "others",
            "key_prefix \"elsewhere/\" { policy = \"write\" }",
        )
        .await,
        String::new(),
    ] {
        let config = if nobody.is_empty() {
            ConsulConfig::new([address.to_string()])
        } else {
            config(&nobody)
        };
        let refused = ConsulTable::connect(config, blue()).await.unwrap_err();
        assert!(
            refused.kind() == TableErrorKind::PermissionDenied
                && refused.to_string().contains(&address.to_string()),
            "{refused}"
        );
    }
    table.delete().await.unwrap();
}

#[tokio::test]
async fn a_user_that_may_only_read_is_enough_for_clients() {
    let server = server().await;
    let rules = "key_prefix \"membership/\" { policy = \"read\" }";
    let clients = token(&Shell::of(server.url()), "clients", rules).await;
    let config = ConsulConfig::new([server.address().to_string()]).token(&clients);
    let client = ConsulTable::connect(config, blue()).await.unwrap();
    let owner = connect(server.url()).await.unwrap();
    may_only_read(&client, &owner).await;
    // Its writes are refused with advice, and not reported as conflicts.
    fill(&owner, 1).await;
    let refused = client.delete().await.unwrap_err();
    assert!(refused.to_string().contains("key_prefix"), "{refused}");
}

/// A policy may hide single keys, and Consul does not report that it did.
#[tokio::test]
async fn rows_hidden_from_a_token_are_reported() {
    let server = server().await;
    let shell = Shell::of(server.url());
    let all = connect(server.url()).await.unwrap();
    let at = fill(&all, 3).await;
    let (hidden, folder) = (silo(1), shell.folder(&blue()));
    let rules = format!(
        "{}\nkey_prefix \"{folder}silo/{hidden}/\" {{ policy = \"deny\" }}",
        ConsulConfig::new(["h"]).schema()
    );
    let partial = token(&shell, "partial", &rules).await;
    let table = ConsulTable::connect(
        ConsulConfig::new([server.address().to_string()]).token(&partial),
        blue(),
    )
    .await
    .unwrap();
    let refused = table.read(&ReadRequest::all()).await.unwrap_err();
    let text = refused.to_string();
    assert_eq!(refused.kind(), TableErrorKind::Damaged, "{text}");
    assert!(
        text.contains("1 of 3 rows") && text.contains("policy") && text.contains("by hand"),
        "{text}"
    );
    // A client that sees fewer rows never gets the answer that a row is missing.
    let kind = commit_kind(&table, &update(&at, 1, "x")).await;
    assert!(
        matches!(
            kind,
            TableErrorKind::PermissionDenied | TableErrorKind::Damaged
        ),
        "{kind:?}"
    );
    assert_eq!(read(&all).await.0.token, at);
    // The same after a row was removed by hand. A cluster that is only damaged can be deleted.
    shell
        .remove(&format!("{folder}silo/{hidden}/"))
        .await
        .unwrap();
    assert_eq!(read_kind(&all, None).await, Err(TableErrorKind::Damaged));
    assert_eq!(
        read_kind(&all, Some(&at)).await,
        Err(TableErrorKind::Damaged)
    );
    all.delete().await.unwrap();
    assert_eq!(initialize(&all).await.map_err(|e| e.kind()), Ok(()));
}

#[tokio::test]
async fn a_token_that_loses_its_rights_says_so() {
    let server = server().await;
    let shell = Shell::of(server.url());
    let rules = ConsulConfig::new(["h"]).schema();
    let secret = token(&shell, "silos", &rules).await;
    let table = ConsulTable::connect(
        ConsulConfig::new([server.address().to_string()]).token(&secret),
        blue(),
    )
    .await
    .unwrap();
    let at = fill(&table, 1).await;
    let (_, policies) = shell.ask(Method::GET, "/acl/policies", "").await.unwrap();
    let policies: Value = serde_json::from_str(&policies).unwrap();
    let id = policies
        .as_array()
        .unwrap()
        .iter()
        .find(|policy| policy["Name"] == "silos")
        .unwrap()["ID"]
        .as_str()
        .unwrap()
        .to_owned();
    let (status, said) = shell
        .ask(Method::DELETE, &format!("/acl/policy/{id}"), "")
        .await
        .unwrap();
    assert!(status.is_success(), "{said}");
    // None of the errors looks like a missing table, or like a conflict.
    until("the policy is gone", async || {
        read_kind(&table, Some(&at)).await.is_err()
    })
    .await;
    assert_eq!(
        read_kind(&table, Some(&at)).await,
        Err(TableErrorKind::PermissionDenied)
    );
    assert_eq!(
        read_kind(&table, None).await,
        Err(TableErrorKind::PermissionDenied)
    );
    assert_eq!(
        table
            .read_row(&silo(0), Some(&at))
            .await
            .unwrap_err()
            .kind(),
        TableErrorKind::PermissionDenied
    );
    assert_eq!(
        commit_kind(&table, &insert(&at, [7])).await,
        TableErrorKind::PermissionDenied
    );
    assert_eq!(
        initialize(&table).await.unwrap_err().kind(),
        TableErrorKind::PermissionDenied
    );
    assert_eq!(
        table.delete().await.unwrap_err().kind(),
        TableErrorKind::PermissionDenied
    );
}

/// Whoever rotates a token writes the new one into the file, and ends the old one.
#[tokio::test]
async fn a_token_file_is_read_again_when_its_token_is_refused() {
    let server = server().await;
    let shell = Shell::of(server.url());
    let all = ConsulConfig::new(["h"]).schema();
    let reads = token(&shell, "reads", &all.replace("write", "read")).await;
    let writes = token(&shell, "writes", &all).await;
    let file = std::env::temp_dir().join(format!("membership-token-{}", std::process::id()));
    std::fs::write(&file, &reads).unwrap();
    let config = ConsulConfig::new([server.address().to_string()]);
    let config = config.token_file(&file).unwrap();
    let table = ConsulTable::connect(config, blue()).await.unwrap();
    let refused = initialize(&table).await.unwrap_err();
    assert_eq!(
        refused.kind(),
        TableErrorKind::PermissionDenied,
        "{refused}"
    );
    std::fs::write(&file, format!("{writes}\n")).unwrap();
    let at = fill(&table, 3).await;
    // A file that cannot be read, or holds no token, changes nothing.
    std::fs::write(&file, "\n").unwrap();
    commit(&table, &remove(&at, 2)).await;
    std::fs::remove_file(&file).unwrap();
    table.delete().await.unwrap();
}
