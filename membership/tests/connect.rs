//! Connection strings lead to tables, or to errors that say what to do and show no secret.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests are no tests themselves, but may unwrap all the same"
)]

use std::sync::Arc;

use membership::{
    ClusterKey, ClusterName, ConnectError, Connectors, InitializeRequest, MembershipTable,
    MemoryTable, ReadAnswer, ReadRequest, SharedSettings, TableId, connect,
};

fn blue() -> ClusterName {
    "blue".parse().unwrap()
}

async fn error(url: &str) -> String {
    Connectors::default()
        .connect(url, blue())
        .await
        .unwrap_err()
        .to_string()
}

#[cfg(feature = "memory")]
#[tokio::test]
async fn memory_stores_of_one_name_are_one_store() {
    let request = InitializeRequest::new(
        TableId::new(5),
        SharedSettings::default(),
        ClusterKey::new([7; 32]),
    );
    connect("memory:one", blue())
        .await
        .unwrap()
        .initialize(&request)
        .await
        .unwrap();
    let same = connect("MEMORY:one", blue()).await.unwrap();
    let ReadAnswer::Snapshot { snapshot, .. } = same.read(&ReadRequest::all()).await.unwrap()
    else {
        panic!("nothing was known")
    };
    assert_eq!(snapshot.table_id(), TableId::new(5));
    for other in ["memory:", "memory:two"] {
        assert!(
            connect(other, blue())
                .await
                .unwrap()
                .read(&ReadRequest::all())
                .await
                .is_err(),
            "{other} is another store"
        );
    }
    let other = connect("memory:one", "green".parse().unwrap())
        .await
        .unwrap();
    assert!(
        other.read(&ReadRequest::all()).await.is_err(),
        "another cluster of the store"
    );
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn sqlite_opens_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("m.db").display());
    let request = InitializeRequest::new(
        TableId::new(5),
        SharedSettings::default(),
        ClusterKey::new([7; 32]),
    );
    connect(&url, blue())
        .await
        .unwrap()
        .initialize(&request)
        .await
        .unwrap();
    assert!(
        connect(&url, blue())
            .await
            .unwrap()
            .read(&ReadRequest::all())
            .await
            .is_ok()
    );
    let error = connect(&format!("{url}?colour=red"), blue())
        .await
        .unwrap_err();
    assert!(matches!(error, ConnectError::Table(_)), "{error}");
}

#[tokio::test]
async fn an_unknown_scheme_has_no_feature() {
    for scheme in ["riak", "cassandra+https"] {
        let error = error(&format!("{scheme}://u:hunter2@host/db")).await;
        assert!(
            error.contains(&format!("this build does not know the scheme `{scheme}:`")),
            "{error}"
        );
        assert!(
            !error.contains("hunter2") && !error.contains("host"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn errors_show_no_secret_and_list_the_schemes() {
    for url in [
        "hunter2",
        "",
        ":hunter2",
        "user hunter2@host:1",
        "Pass:hunter2",
        "a_b://hunter2",
    ] {
        let error = error(url).await;
        assert!(!error.contains("hunter2"), "{error}");
        #[cfg(feature = "memory")]
        assert!(error.contains("`memory:`"), "{error}");
    }
    assert!(
        error("oracle://scott:hunter2@db")
            .await
            .starts_with("this build does not know the scheme `oracle:`")
    );
}

#[tokio::test]
async fn a_scheme_without_its_feature_names_the_feature() {
    // A scheme without its factory is the same as one with its feature off.
    let error = Connectors::empty()
        .connect("sqlite:hunter2", blue())
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("cargo add silo-membership --features sqlite") && !error.contains("hunter2"),
        "{error}"
    );
}

#[tokio::test]
async fn the_schemes_of_mongodb_belong_to_its_features() {
    for (scheme, feature) in [("mongodb", "mongodb"), ("mongodb+srv", "mongodb-srv")] {
        let error = Connectors::empty()
            .connect(&format!("{scheme}://u:hunter2@h"), blue())
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(&format!("cargo add silo-membership --features {feature}"))
                && !error.contains("hunter2"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn the_schemes_of_consul_belong_to_one_feature() {
    for scheme in ["consul", "consul+https"] {
        let error = Connectors::empty()
            .connect(&format!("{scheme}://:hunter2@h"), blue())
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("cargo add silo-membership --features consul")
                && !error.contains("hunter2"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn the_schemes_of_etcd_belong_to_one_feature() {
    for scheme in ["etcd", "etcd+https"] {
        let error = Connectors::empty()
            .connect(&format!("{scheme}://u:hunter2@h"), blue())
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("cargo add silo-membership --features etcd")
                && !error.contains("hunter2"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn the_schemes_of_redis_belong_to_one_feature() {
    for scheme in ["redis", "rediss", "redis+sentinel", "redis+cluster"] {
        let error = Connectors::empty()
            .connect(&format!("{scheme}://u:hunter2@host"), blue())
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("--features redis")
                && !error.contains("hunter2")
                && !error.contains("host"),
            "{error}"
        );
    }
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn errors_of_redis_are_passed_on() {
    // No process listens on port 1.
    for url in [
        "redis://u:hunter2@127.0.0.1:1",
        "redis+sentinel://:hunter2@127.0.0.1:1/main",
        "redis+cluster://:hunter2@127.0.0.1:1",
    ] {
        let error = error(url).await;
        assert!(
            error.contains("127.0.0.1:1")
                && error.contains("unavailable")
                && !error.contains("hunter2"),
            "{error}"
        );
    }
    let error = error("redis://u:hunter2@127.0.0.1:1?colour=red").await;
    assert!(
        error.contains("`colour` is no option") && !error.contains("hunter2"),
        "{error}"
    );
}

#[tokio::test]
async fn third_parties_register_schemes() {
    let mut connectors = Connectors::empty();
    let factory = |url: String, cluster| -> membership::Connecting {
        Box::pin(async move {
            assert_eq!(url, "acme+x://host");
            Ok(Arc::new(MemoryTable::new(cluster)) as Arc<dyn MembershipTable>)
        })
    };
    connectors.register("acme+x", factory).unwrap();
    assert_eq!(connectors.schemes().collect::<Vec<_>>(), ["acme+x"]);
    assert_eq!(
        *connectors
            .connect("acme+x://host", blue())
            .await
            .unwrap()
            .cluster(),
        blue()
    );
    for bad in ["", "Acme", "1acme", "ac:me", "ac me", &"a".repeat(33)] {
        assert!(
            matches!(
                connectors.register(bad, factory),
                Err(ConnectError::BadScheme)
            ),
            "{bad}"
        );
    }
}

#[tokio::test]
async fn the_schemes_of_postgres_belong_to_one_feature() {
    for scheme in ["postgres", "postgresql"] {
        let error = Connectors::empty()
            .connect(&format!("{scheme}://u:hunter2@host"), blue())
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("--features postgres")
                && !error.contains("hunter2")
                && !error.contains("host"),
            "{error}"
        );
    }
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn errors_of_postgres_are_passed_on() {
    // No process listens on port 1.
    let unreachable = error("postgres://u:hunter2@127.0.0.1:1/d").await;
    assert!(
        unreachable.contains("unavailable") && !unreachable.contains("hunter2"),
        "{unreachable}"
    );
    let unknown = error("postgres://u:hunter2@127.0.0.1:1/d?colour=red").await;
    assert!(
        unknown.contains("`colour` is no option") && !unknown.contains("hunter2"),
        "{unknown}"
    );
}

#[cfg(feature = "azure-table")]
#[tokio::test]
async fn an_azure_table_needs_an_account() {
    assert_eq!(
        connect("azure-table:///silos?development", blue())
            .await
            .unwrap()
            .store(),
        "azure-table"
    );
    let error = connect("azure-table://bo:hunter2@contoso/silos", blue())
        .await
        .unwrap_err();
    assert!(
        matches!(error, ConnectError::Table(_)) && !error.to_string().contains("hunter2"),
        "{error}"
    );
}

#[cfg(feature = "cassandra")]
#[tokio::test]
async fn errors_of_cassandra_are_passed_on() {
    // No process listens on port 1.
    let unreachable = error("cassandra://u:hunter2@127.0.0.1:1/ks").await;
    assert!(
        unreachable.contains("unavailable") && !unreachable.contains("hunter2"),
        "{unreachable}"
    );
    let unknown = error("cassandra://u:hunter2@127.0.0.1:1/ks?colour=red").await;
    assert!(
        unknown.contains("`colour` is no option") && !unknown.contains("hunter2"),
        "{unknown}"
    );
}
