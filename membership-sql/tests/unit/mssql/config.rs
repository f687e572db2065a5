//! Unit tests of `src/mssql/config.rs`, which includes them.

use super::*;

fn from_url(url: &str) -> Result<MssqlConfig, TableError> {
    MssqlConfig::from_url_and(url, Some("from the environment".to_owned()))
}

#[test]
fn a_url_names_server_user_and_options() {
    let url = "mssql://silo:p%40ss@[::1]:1444/app?encrypt=strict&host_name_in_certificate=db&create=false&failover_may_lose=false&operation_timeout=3s";
    let config = from_url(url).unwrap();
    assert_eq!(config.server().to_string(), "[::1]:1444");
    assert_eq!(config.password.as_deref(), Some("p@ss"));
    assert_eq!(config.encryption, MssqlEncryption::Strict);
    assert_eq!(config.timeout(), Duration::from_secs(3));
    assert_eq!(config.loses_at_failover(), Some(false));
    assert!(!config.creates());
    assert!(!format!("{config:?}").contains("p@ss"));
    let config = from_url("mssql://silo@db.example/app").unwrap();
    assert_eq!(config.server().port, 1433);
    assert_eq!(config.password.as_deref(), Some("from the environment"));
    assert_eq!(config.encryption, MssqlEncryption::Mandatory);
}

#[test]
fn what_cannot_work_is_refused() {
    for (url, why) in [
        ("mssql://silo@db", "no database"),
        ("mssql://a,b/app", "name one host"),
        ("mssql://db/app", "access_token_file"),
        (
            "mssql://silo:p@db/app?access_token_file=/t",
            "leave one of them out",
        ),
        (
            "mssql://db/app?access_token_file=/t&encrypt=never",
            "never sent unencrypted",
        ),
        ("mssql://silo:p@db/app?encrypt=perhaps", "encrypt"),
        ("mssql://silo:p@db/app?colour=red", "failover_may_lose"),
        ("mssql://silo:p@db/app?tls_ca=/no/such/file", "tls_ca"),
        (
            "mssql://silo:p@db/app?tls_ca=/dev/null&trust_server_certificate=true",
            "tls_ca",
        ),
        (
            "mssql://silo:p@db/app?operation_timeout=1ms",
            "operation_timeout",
        ),
        ("postgres://silo:p@db/app", "mssql"),
    ] {
        let e = from_url(url).unwrap_err();
        assert_eq!(e.kind(), TableErrorKind::Configuration, "{url}");
        assert!(e.to_string().contains(why), "{url}: {e}");
        assert!(!e.to_string().contains(":p@"), "{e}");
    }
}

#[tokio::test]
async fn a_token_is_read_from_its_file_for_each_connection() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    let url = format!("mssql://db/app?access_token_file={}", path.display());
    let config = from_url(&url).unwrap();
    let missing = config.driver().await.unwrap_err();
    assert_eq!(missing.kind(), TableErrorKind::PermissionDenied);
    std::fs::write(&path, "a-token\n").unwrap();
    let driver = config.driver().await.unwrap();
    assert!(!format!("{driver:?}").contains("a-token"));
    std::fs::write(&path, "\n").unwrap();
    assert!(
        config
            .driver()
            .await
            .unwrap_err()
            .to_string()
            .contains("is empty")
    );
}
