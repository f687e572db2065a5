//! Tokens of Entra ID: a stage of its own before each request. A transport of this test takes the
//! requests, so that no server is needed. Clauses T5 and T13.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use azure_core::Error;
use azure_core::credentials::{AccessToken, TokenCredential, TokenRequestOptions};
use azure_core::error::ErrorKind;
use azure_core::http::headers::{AUTHORIZATION, Headers};
use azure_core::http::{AsyncRawResponse, HttpClient, Request, StatusCode, Transport};
use azure_core::time::OffsetDateTime;
use conformance_tests::helpers::{blue, heartbeat, insert, unknown_token};
use membership_azure::{AzureTable, AzureTableConfig};
use membership_core::{MembershipTable, ReadRequest, TableError, TableErrorKind};

/// A table service that has no table, and a network in which, after some answers, nobody has the
/// address of the metadata service: packets to it are lost.
#[derive(Debug, Default)]
struct Service {
    /// What authorized the requests that reached the table.
    seen: Mutex<Vec<String>>,
    /// The status of the next answers; then 404.
    answers: Mutex<VecDeque<u16>>,
    /// What the metadata service answers.
    metadata: Mutex<VecDeque<(u16, String)>>,
}

#[async_trait]
impl HttpClient for Service {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        if request.url().host_str() == Some("169.254.169.254") {
            let next = self.metadata.lock().unwrap().pop_front();
            let Some((status, body)) = next else {
                return std::future::pending().await;
            };
            let status = StatusCode::from(status);
            return Ok(AsyncRawResponse::from_bytes(status, Headers::new(), body));
        }
        let by = request.headers().get_optional_str(&AUTHORIZATION);
        self.seen.lock().unwrap().push(by.unwrap().to_owned());
        let next = self.answers.lock().unwrap().pop_front();
        let mut headers = Headers::new();
        if next.is_none() {
            headers.insert("x-ms-error-code", "TableNotFound");
        }
        let status = StatusCode::from(next.unwrap_or(404));
        Ok(AsyncRawResponse::from_bytes(status, headers, ""))
    }
}

impl Service {
    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

/// What a credential comes to, call by call; the last one repeats.
#[derive(Clone, Debug)]
enum Comes {
    /// A token that lives so long, after so long.
    Token(Duration, Duration),
    /// Nothing, ever.
    Never,
    /// An error of this kind.
    Fails(ErrorKind),
}

#[derive(Debug)]
struct Tokens(Mutex<VecDeque<Comes>>, AtomicU64);

#[async_trait]
impl TokenCredential for Tokens {
    async fn get_token(
        &self,
        _: &[&str],
        _: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        let comes = {
            let mut all = self.0.lock().unwrap();
            match all.len() {
                1 => all[0].clone(),
                _ => all.pop_front().unwrap(),
            }
        };
        let n = self.1.fetch_add(1, Ordering::Relaxed) + 1;
        match comes {
            Comes::Never => std::future::pending().await,
            Comes::Fails(kind) => {
                let inner = Error::with_message(kind, "as planned");
                Err(Error::with_error(ErrorKind::Credential, inner, "no token"))
            }
            Comes::Token(lives, after) => {
                tokio::time::sleep(after).await;
                let expires = OffsetDateTime::now_utc() + lives;
                Ok(AccessToken::new(format!("t{n}"), expires))
            }
        }
    }
}

const HOUR: Duration = Duration::from_secs(3600);
const NOW: Duration = Duration::ZERO;

async fn table(
    service: &Arc<Service>,
    timeout: Duration,
    tokens: Option<&Arc<Tokens>>,
) -> AzureTable {
    let config = AzureTableConfig::new("acct", "membership")
        .transport(Transport::new(service.clone()))
        .operation_timeout(timeout);
    let config = match tokens {
        Some(tokens) => config.token_credential(tokens.clone()),
        None => config,
    };
    AzureTable::connect(config, blue()).await.unwrap()
}

fn tokens(comes: impl IntoIterator<Item = Comes>) -> Arc<Tokens> {
    Arc::new(Tokens(
        Mutex::new(comes.into_iter().collect()),
        AtomicU64::new(0),
    ))
}

async fn read(table: &AzureTable) -> TableError {
    table.read(&ReadRequest::all()).await.unwrap_err()
}

#[tokio::test]
async fn what_has_no_token_is_not_sent() {
    let service = Arc::new(Service::default());
    let table = table(
        &service,
        Duration::from_secs(1),
        Some(&tokens([Comes::Never])),
    )
    .await;
    // The token carries an ETag, so that the first request of the commit is the transaction.
    let etag = [&[0; 6][..], b"W/\"x\""].concat();
    let known = unknown_token();
    let known = membership_core::VersionToken::new(known.table_id(), 0, known.commit(), &etag);
    let committed = table.commit(&insert(&known, [1])).await.unwrap_err();
    let beaten = table.update_i_am_alive(&heartbeat(1, 1)).await.unwrap_err();
    for error in [committed, beaten, read(&table).await] {
        let said = error.to_string();
        assert_eq!(error.kind(), TableErrorKind::Unavailable, "{said}");
        assert!(said.contains("token of Entra ID"), "{said}");
    }
    assert!(service.seen().is_empty());
}

#[tokio::test]
async fn a_token_that_comes_late_is_there_for_the_next_call() {
    let service = Arc::new(Service::default());
    let late = tokens([Comes::Token(HOUR, Duration::from_secs(2))]);
    let table = table(&service, Duration::from_secs(1), Some(&late)).await;
    let error = read(&table).await;
    assert_eq!(error.kind(), TableErrorKind::Unavailable, "{error}");
    assert!(service.seen().is_empty());
    conformance_tests::helpers::until("the token is used", async || {
        read(&table).await.kind() == TableErrorKind::NotInitialized
    })
    .await;
    assert_eq!(service.seen(), ["Bearer t1"]);
    assert_eq!(late.1.load(Ordering::Relaxed), 1, "it was asked for again");
}

#[tokio::test]
async fn a_token_service_that_is_away_refuses_nobody() {
    for (kind, expected) in [
        (ErrorKind::Connection, TableErrorKind::Unavailable),
        (ErrorKind::Io, TableErrorKind::Unavailable),
        (ErrorKind::Credential, TableErrorKind::PermissionDenied),
    ] {
        let service = Arc::new(Service::default());
        let fails = tokens([Comes::Fails(kind)]);
        let table = table(&service, Duration::from_secs(5), Some(&fails)).await;
        let error = read(&table).await;
        assert_eq!(error.kind(), expected, "{error}");
        assert!(error.to_string().contains("as planned"), "{error}");
    }
}

#[tokio::test]
async fn a_token_is_kept_until_it_expires_or_is_refused() {
    let service = Arc::new(Service::default());
    let minute = Duration::from_secs(60);
    let some = tokens([
        Comes::Token(HOUR, NOW),
        // Close to its end it is replaced, if there is a new one.
        Comes::Token(minute, NOW),
        Comes::Fails(ErrorKind::Connection),
        Comes::Token(HOUR, NOW),
    ]);
    let table = table(&service, Duration::from_secs(5), Some(&some)).await;
    for _ in 0..2 {
        assert_eq!(read(&table).await.kind(), TableErrorKind::NotInitialized);
    }
    service.answers.lock().unwrap().push_back(401);
    assert_eq!(read(&table).await.kind(), TableErrorKind::PermissionDenied);
    for _ in 0..3 {
        assert_eq!(read(&table).await.kind(), TableErrorKind::NotInitialized);
    }
    let by = ["t1", "t1", "t1", "t2", "t2", "t4"].map(|token| format!("Bearer {token}"));
    assert_eq!(service.seen(), by);
}

/// The test that a process of its own runs, without credentials in its environment.
const CHILD: &str = "MEMBERSHIP_TEST_AZURE_CHILD";

fn child(test: &str, path: &str) {
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture"]);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("AZURE_")) {
        child.env_remove(name);
    }
    let ran = child.env("PATH", path).env(CHILD, "1").output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    let errors = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(
        ran.status.success() && said.contains("1 passed"),
        "{said}{errors}"
    );
}

#[cfg(unix)]
#[tokio::test]
async fn the_login_of_the_azure_cli_is_reached_where_no_metadata_answers() {
    use std::os::unix::fs::PermissionsExt as _;
    let bin = std::env::temp_dir().join(format!("membership-az-{}", std::process::id()));
    std::fs::create_dir_all(&bin).unwrap();
    let az = bin.join("az");
    let token = r#"{"accessToken":"of-the-cli","tokenType":"Bearer","expires_on":4070908800,"expiresOn":"2099-01-01 00:00:00.000000"}"#;
    std::fs::write(&az, format!("#!/bin/sh\necho '{token}'\n")).unwrap();
    std::fs::set_permissions(&az, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    child("child_with_a_login", &path);
    std::fs::remove_dir_all(&bin).unwrap();
}

/// Does nothing unless it is a process of its own.
#[tokio::test]
async fn child_with_a_login() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let service = Arc::new(Service::default());
    let table = table(&service, Duration::from_secs(30), None).await;
    let error = read(&table).await;
    assert_eq!(error.kind(), TableErrorKind::NotInitialized, "{error}");
    assert_eq!(service.seen(), ["Bearer of-the-cli"]);
}

#[tokio::test]
async fn a_metadata_service_that_goes_away_refuses_nobody() {
    child("child_with_an_identity", "/nowhere");
}

/// Does nothing unless it is a process of its own.
#[tokio::test]
async fn child_with_an_identity() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let service = Arc::new(Service::default());
    let ends = OffsetDateTime::now_utc().unix_timestamp() + 5;
    let token = format!(
        r#"{{"access_token":"of-the-machine","expires_on":"{ends}","token_type":"Bearer","resource":"r"}}"#
    );
    let answers = [(400, String::new()), (200, token)];
    service.metadata.lock().unwrap().extend(answers);
    let table = table(&service, Duration::from_secs(30), None).await;
    assert_eq!(read(&table).await.kind(), TableErrorKind::NotInitialized);
    assert_eq!(service.seen(), ["Bearer of-the-machine"]);
    // Its token is used to its end; then there is none.
    conformance_tests::helpers::until("the token has ended", async || {
        read(&table).await.kind() != TableErrorKind::NotInitialized
    })
    .await;
    let error = read(&table).await;
    assert_eq!(error.kind(), TableErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("metadata"), "{error}");
}
