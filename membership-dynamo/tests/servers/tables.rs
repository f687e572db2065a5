//! The table itself: created when it is needed, described, refused. Clause T12.

use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use membership_core::{MembershipTable, TableErrorKind};
use membership_dynamo::{DynamoConfig, DynamoTable};
use membership_testbed::Server;

use crate::support::*;
use conformance_tests::helpers::*;

pub async fn many_clients_create_one_table(server: &Server) {
    let url = at(server, "made", "");
    let before = connect(&url).await.unwrap();
    assert_eq!(
        read_kind(&before, None).await,
        Err(TableErrorKind::NotInitialized)
    );
    assert_eq!(
        read_kind(&before, Some(&unknown_token())).await,
        Err(TableErrorKind::TableReplaced)
    );
    assert_eq!(
        commit_kind(&before, &insert(&unknown_token(), [1])).await,
        TableErrorKind::TableReplaced
    );
    assert_eq!(
        before
            .update_i_am_alive(&heartbeat(1, 1))
            .await
            .unwrap_err()
            .kind(),
        TableErrorKind::NotInitialized
    );
    before.delete().await.unwrap();
    let mut many = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let url = url.clone();
        many.spawn(async move { initialize(&connect(&url).await.unwrap()).await });
    }
    while let Some(made) = many.join_next().await {
        made.unwrap().unwrap();
    }
    assert_eq!(read(&before).await.0.version(), 0);
    let (client, table) = shell(&url);
    let made = client
        .describe_table()
        .table_name(table)
        .send()
        .await
        .unwrap()
        .table
        .unwrap();
    assert_eq!(
        made.billing_mode_summary
            .and_then(|billing| billing.billing_mode),
        Some(BillingMode::PayPerRequest)
    );
}

pub async fn a_table_that_may_not_be_created_is_described(server: &Server) {
    let url = at(server, "unmade", "create=false");
    let table = connect(&url).await.unwrap();
    let refused = initialize(&table).await.unwrap_err();
    assert_eq!(refused.kind(), TableErrorKind::Configuration);
    let said = refused.to_string();
    assert!(
        said.contains("\"TableName\": \"unmade\"")
            && said.contains("\"AttributeName\": \"item\", \"KeyType\": \"RANGE\""),
        "{said}"
    );
    let (client, name) = shell(&url);
    assert!(
        client
            .describe_table()
            .table_name(name)
            .send()
            .await
            .is_err(),
        "something was made"
    );
}

pub async fn a_table_with_other_keys_is_refused(server: &Server) {
    let (client, _) = shell(server.url());
    let attribute = |name: &str| {
        AttributeDefinition::builder()
            .attribute_name(name)
            .attribute_type(ScalarAttributeType::S)
            .build()
            .unwrap()
    };
    let key = |name: &str, kind| {
        KeySchemaElement::builder()
            .attribute_name(name)
            .key_type(kind)
            .build()
            .unwrap()
    };
    // A table as Orleans creates it.
    let create = client
        .create_table()
        .table_name("OrleansSilos")
        .billing_mode(BillingMode::PayPerRequest);
    let create = create
        .attribute_definitions(attribute("DeploymentId"))
        .attribute_definitions(attribute("SiloIdentity"));
    create
        .key_schema(key("DeploymentId", KeyType::Hash))
        .key_schema(key("SiloIdentity", KeyType::Range))
        .send()
        .await
        .unwrap();
    let refused = connect(&at(server, "OrleansSilos", "")).await.unwrap_err();
    assert_eq!(refused.kind(), TableErrorKind::ForeignTable, "{refused}");
    // A handle that existed before, and has not inspected the table since.
    let url = at(server, "swapped", "");
    let table = connect(&url).await.unwrap();
    let create = client
        .create_table()
        .table_name("swapped")
        .billing_mode(BillingMode::PayPerRequest);
    create
        .attribute_definitions(attribute("id"))
        .key_schema(key("id", KeyType::Hash))
        .send()
        .await
        .unwrap();
    assert_eq!(
        initialize(&table).await.unwrap_err().kind(),
        TableErrorKind::ForeignTable
    );
    assert_eq!(
        read_kind(&table, None).await,
        Err(TableErrorKind::ForeignTable)
    );
    assert_eq!(
        client
            .scan()
            .table_name("swapped")
            .send()
            .await
            .unwrap()
            .count,
        0,
        "something was written"
    );
}

pub async fn provisioned_capacity_is_asked_for(server: &Server) {
    let url = at(server, "provisioned", "read_capacity=7&write_capacity=9");
    fill(&connect(&url).await.unwrap(), 1).await;
    let (client, name) = shell(&url);
    let made = client
        .describe_table()
        .table_name(name)
        .send()
        .await
        .unwrap()
        .table
        .unwrap()
        .provisioned_throughput
        .unwrap();
    assert_eq!(
        (made.read_capacity_units, made.write_capacity_units),
        (Some(7), Some(9))
    );
}

pub async fn an_existing_client_is_used(server: &Server) {
    let (client, _) = shell(server.url());
    let table = DynamoTable::connect(DynamoConfig::from_client(client, "mine"), blue())
        .await
        .unwrap();
    fill(&table, 2).await;
    assert_eq!(
        read(&connect(&at(server, "mine", "")).await.unwrap())
            .await
            .0
            .rows
            .len(),
        2
    );
}
