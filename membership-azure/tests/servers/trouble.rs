//! Failures, and the errors that report them.

use std::time::Duration;

use azure_core::credentials::Secret;
use azure_core::hmac::hmac_sha256;
use conformance_tests::helpers::{self, fill, heartbeat, read_like_a_client};
use membership_azure::{AzureTable, AzureTableConfig};
use membership_core::{
    ClusterKey, ClusterName, CommitId, CommitOutcome, CommitRequest, Heartbeat, HeartbeatWrite,
    InitializeRequest, InstanceId, MembershipEntry, MembershipTable, ReadAnswer, ReadRequest,
    SharedSettings, SiloAddress, Snapshot, TableError, TableErrorKind, TableId, WallTime,
};
use membership_testbed::{How, Server};
use serde_json::{Map, Value};

use crate::support::shell::{Shell, row_key};
use crate::support::{SECRET, server};

pub fn cluster(name: &str) -> ClusterName {
    let nanos = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    ClusterName::new(format!("{name}-{nanos:x}"), "blue").unwrap()
}

fn entry(n: u16) -> MembershipEntry {
    MembershipEntry::new(
        SiloAddress::new([10, 0, 0, 1].into(), n, 17),
        InstanceId::new(n.into()),
        WallTime::from_millis(5),
    )
}

pub async fn table(url: &str, cluster: &ClusterName) -> AzureTable {
    let config = AzureTableConfig::from_url(url).unwrap();
    AzureTable::connect(
        config.operation_timeout(Duration::from_secs(20)),
        cluster.clone(),
    )
    .await
    .unwrap()
}

async fn initialize(table: &AzureTable) -> Result<(), TableError> {
    table
        .initialize(&InitializeRequest::new(
            TableId::new(7),
            SharedSettings::default(),
            ClusterKey::new([7; 32]),
        ))
        .await
}

async fn read(table: &AzureTable) -> Snapshot {
    match table.read(&ReadRequest::all()).await.unwrap() {
        ReadAnswer::Snapshot { snapshot, .. } => snapshot,
        other => panic!("{other:?}"),
    }
}

fn joins(on: &Snapshot, n: u16) -> CommitRequest {
    CommitRequest::new(
        on.token.clone(),
        CommitId::new(u128::from(n) + 100),
        None,
        [entry(n)],
        [],
        [],
    )
}

/// Requires an error of one line that names host and port and says what to do.
fn told(what: &str, error: &TableError, kind: TableErrorKind, words: &[&str]) {
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{what}: {text}");
    assert!(
        words.iter().all(|word| text.contains(word)) && text.lines().count() == 1,
        "{what}: {text}"
    );
    assert!(
        !format!("{error:?}{text}").contains(SECRET),
        "{what} shows the key: {error:?}"
    );
}

#[tokio::test]
async fn each_mistake_is_reported_in_one_line() {
    let server = server().await;
    let (url, blue) = (server.url().to_owned(), cluster("mistakes"));
    let good = table(&url, &blue).await;
    initialize(&good).await.unwrap();
    let (address, host) = (
        server.address().to_string(),
        server.address().ip().to_string(),
    );
    let ours = server.how() != How::External;

    let free = membership_testbed::free_port().unwrap();
    let nobody = table(&url.replace(&address, &format!("127.0.0.1:{free}")), &blue).await;
    let error = nobody.read(&ReadRequest::all()).await.unwrap_err();
    told(
        "a wrong port",
        &error,
        TableErrorKind::Unavailable,
        &[&format!("127.0.0.1:{free}"), "reach"],
    );
    let error = initialize(&nobody).await.unwrap_err();
    told(
        "a wrong port, writing",
        &error,
        TableErrorKind::Unavailable,
        &["nothing was written"],
    );
    let write = HeartbeatWrite::Cluster {
        text: String::new(),
    };
    let error = nobody.update_i_am_alive(&write).await.unwrap_err();
    told(
        "a wrong port, heartbeat",
        &error,
        TableErrorKind::Unavailable,
        &["nothing was written"],
    );

    let unknown = table(
        &url.replace(
            &format!("http://{address}"),
            "http://no-such-host.invalid:10002",
        ),
        &blue,
    )
    .await;
    let error = unknown.read(&ReadRequest::all()).await.unwrap_err();
    told(
        "a wrong host",
        &error,
        TableErrorKind::Unavailable,
        &["no-such-host.invalid:10002"],
    );

    let tls = table(&url.replace("endpoint=http://", "endpoint=https://"), &blue).await;
    let error = tls.read(&ReadRequest::all()).await.unwrap_err();
    told(
        "TLS where there is none",
        &error,
        TableErrorKind::Unavailable,
        &[&address],
    );

    let absent = table(&url.replace("/membership?", "/nosuchtable?"), &blue).await;
    let error = absent.read(&ReadRequest::all()).await.unwrap_err();
    told(
        "a table that is not there",
        &error,
        TableErrorKind::NotInitialized,
        &["initialize"],
    );
    let error = absent.update_i_am_alive(&write).await.unwrap_err();
    told(
        "a heartbeat to a table that is not there",
        &error,
        TableErrorKind::NotInitialized,
        &[],
    );

    if ours {
        let stranger = table(&url.replace(SECRET, "AAAA"), &blue).await;
        let error = stranger.read(&ReadRequest::all()).await.unwrap_err();
        told(
            "a wrong key",
            &error,
            TableErrorKind::PermissionDenied,
            &[&host, "key"],
        );
        let error = initialize(&stranger).await.unwrap_err();
        told(
            "a wrong key, writing",
            &error,
            TableErrorKind::PermissionDenied,
            &[&host],
        );
        let base = read(&good).await;
        let error = stranger.commit(&joins(&base, 1)).await.unwrap_err();
        told(
            "a wrong key, committing",
            &error,
            TableErrorKind::PermissionDenied,
            &[&host],
        );
    }

    // Tokens are never sent without TLS.
    let open = format!(
        "azure-table://devstoreaccount1/membership?credential=developer&endpoint=http://{address}/devstoreaccount1"
    );
    let error = table(&open, &blue)
        .await
        .read(&ReadRequest::all())
        .await
        .unwrap_err();
    told(
        "a token without TLS",
        &error,
        TableErrorKind::Configuration,
        &["https"],
    );
    good.delete().await.unwrap();
}

/// A server of another kind: whatever it answers, no write counts as done.
#[tokio::test]
async fn another_kind_of_server_is_reported() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    for (answer, read_kind, write_kind) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
            TableErrorKind::Configuration,
            TableErrorKind::OutcomeUnknown,
        ),
        (
            "HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
            TableErrorKind::Unavailable,
            TableErrorKind::OutcomeUnknown,
        ),
        (
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            TableErrorKind::Configuration,
            TableErrorKind::Configuration,
        ),
        (
            "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            TableErrorKind::Unavailable,
            TableErrorKind::OutcomeUnknown,
        ),
        (
            "HTTP/1.1 503 Server Busy\r\nx-ms-error-code: ServerBusy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            TableErrorKind::Busy,
            TableErrorKind::Busy,
        ),
        (
            "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            TableErrorKind::Busy,
            TableErrorKind::Busy,
        ),
        (
            "SSH-2.0-OpenSSH_9.2\r\n",
            TableErrorKind::Unavailable,
            TableErrorKind::OutcomeUnknown,
        ),
    ] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = vec![0; 1 << 16];
                let _ = stream.read(&mut request).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        let url = format!(
            "azure-table://acct/membership?account_key=AAAA&endpoint=http://{address}/acct&operation_timeout=5s"
        );
        let table = table(&url, &cluster("nobody")).await;
        let error = table.read(&ReadRequest::all()).await.unwrap_err();
        told(answer, &error, read_kind, &[&address.to_string()]);
        // The token carries an ETag, so that the first request of the commit is the transaction.
        let etag = [&[0; 6][..], b"W/\"x\""].concat();
        let token = membership_core::VersionToken::new(TableId::new(7), 0, CommitId::new(0), &etag);
        let request = CommitRequest::new(token, CommitId::new(1), None, [entry(1)], [], []);
        let error = table.commit(&request).await.unwrap_err();
        told(answer, &error, write_kind, &[&address.to_string()]);
        served.abort();
    }
}

/// A signature of the account, as the portal creates it.
fn signature(key: &str, permissions: &str) -> String {
    let (account, version, expiry) = ("devstoreaccount1", "2019-02-02", "2099-01-01T00:00:00Z");
    let text = format!("{account}\n{permissions}\nt\nco\n\n{expiry}\n\nhttps,http\n{version}\n");
    let signed = hmac_sha256(&text, &Secret::new(key.to_owned())).unwrap();
    let signed = signed
        .replace('+', "%2B")
        .replace('/', "%2F")
        .replace('=', "%3D");
    format!(
        "sv={version}&ss=t&srt=co&sp={permissions}&se={}&spr=https%2Chttp&sig={signed}",
        expiry.replace(':', "%3A")
    )
}

/// A table with a signature of this key.
async fn signed(
    server: &Server,
    cluster: &ClusterName,
    key: &str,
    permissions: &str,
) -> AzureTable {
    let endpoint = format!("http://{}/devstoreaccount1", server.address());
    let config = AzureTableConfig::new("devstoreaccount1", "membership")
        .endpoint(endpoint)
        .shared_access_signature(format!("?{}", signature(key, permissions)));
    AzureTable::connect(config, cluster.clone()).await.unwrap()
}

/// Azurite accepts a transaction with any permission, so neither `commit` nor `initialize` is
/// refused to a client here. It does check every other request.
#[tokio::test]
async fn a_user_that_may_only_read_is_enough_for_clients() {
    let server = server().await;
    if server.how() == How::External {
        eprintln!(
            "not applicable: the account is external, and this test must not sign with its key"
        );
        return;
    }
    let blue = cluster("read");
    let owner = table(server.url(), &blue).await;
    fill(&owner, 3).await;
    owner.update_i_am_alive(&heartbeat(1, 1)).await.unwrap();
    let before = helpers::read(&owner).await;
    let client = signed(&server, &blue, SECRET, "r").await;
    assert_eq!(read_like_a_client(&client).await, before);
    let cell = HeartbeatWrite::Cluster {
        text: "x".to_owned(),
    };
    for (what, refused) in [
        (
            "a heartbeat",
            client.update_i_am_alive(&heartbeat(1, 2)).await,
        ),
        ("a text", client.update_i_am_alive(&cell).await),
        ("a deletion", client.delete().await),
    ] {
        let (error, kind) = (refused.unwrap_err(), TableErrorKind::PermissionDenied);
        told(what, &error, kind, &["127.0.0.1"]);
    }
    assert_eq!(helpers::read(&owner).await, before);
    owner.delete().await.unwrap();
}

#[tokio::test]
async fn signatures_allow_only_their_permissions() {
    let server = server().await;
    if server.how() == How::External {
        eprintln!(
            "not applicable: the account is external, and this test must not sign with its key"
        );
        return;
    }
    let blue = cluster("signed");
    let good = table(server.url(), &blue).await;
    initialize(&good).await.unwrap();
    let with = |key, permissions| signed(&server, &blue, key, permissions);
    let all = with(SECRET, "raud").await;
    initialize(&all).await.unwrap();
    let base = read(&all).await;
    assert!(matches!(
        all.commit(&joins(&base, 1)).await.unwrap(),
        CommitOutcome::Committed(_)
    ));
    let beat = HeartbeatWrite::Silo {
        silo: entry(1).address,
        heartbeat: Heartbeat {
            counter: 1,
            at: WallTime::from_millis(1),
        },
    };
    all.update_i_am_alive(&beat).await.unwrap();
    let base = read(&all).await;
    let forged = with("AAAA", "raud").await;
    let error = forged.commit(&joins(&base, 2)).await.unwrap_err();
    assert!(
        !format!("{forged:?}{error:?}{error}").contains("sig="),
        "{forged:?} {error:?}"
    );
    assert_eq!(error.kind(), TableErrorKind::PermissionDenied, "{error}");
    good.delete().await.unwrap();
}

#[tokio::test]
async fn rows_and_entities_of_others_are_shown_and_can_be_removed() {
    let server = server().await;
    let blue = cluster("others");
    let (table, shell) = (
        table(server.url(), &blue).await,
        Shell::of(server.url(), &blue).unwrap(),
    );
    initialize(&table).await.unwrap();
    let CommitOutcome::Committed(_) = table.commit(&joins(&read(&table).await, 1)).await.unwrap()
    else {
        panic!("a conflict")
    };
    let junk = Map::from_iter([("Body".to_owned(), Value::from("junk"))]);
    let keys = ["it's", "a b", "~4", "rowkey:x y", "10.0.0.1-11111-17"];
    // These entities sort behind the rows. They are not part of the table, and are only removed
    // with it.
    for key in keys.into_iter().chain(["~zz", "ü☃"]) {
        shell.put(key, &junk).await.unwrap();
    }
    let rows = read(&table).await.rows;
    assert_eq!(
        (rows.len(), rows.undecodable().count()),
        (keys.len() + 1, keys.len()),
        "{rows:?}"
    );
    let mut n = 1_000;
    for row in rows.undecodable() {
        n += 1;
        let base = read(&table).await;
        let remove = CommitRequest::new(
            base.token.clone(),
            CommitId::new(n),
            None,
            [],
            [],
            [row.key().to_owned()],
        );
        // A row that another program wrote has no heartbeat; it is removed like any other.
        assert!(
            matches!(
                table.commit(&remove).await.unwrap(),
                CommitOutcome::Committed(_)
            ),
            "{}",
            row.key()
        );
    }
    assert_eq!(read(&table).await.rows.len(), 1);
    // A heartbeat that was removed by hand does not prevent the removal of its row, and the next
    // heartbeat restores it.
    let beats = |n: u16| format!("~heartbeat:{}", row_key(&entry(n).address.row_key()));
    shell.delete(&beats(1)).await.unwrap();
    let beat = Heartbeat {
        counter: 3,
        at: WallTime::from_millis(3),
    };
    table
        .update_i_am_alive(&HeartbeatWrite::Silo {
            silo: entry(1).address,
            heartbeat: beat,
        })
        .await
        .unwrap();
    assert_eq!(
        table
            .read_row(&entry(1).address, None)
            .await
            .unwrap()
            .heartbeat,
        Some(beat)
    );
    let base = read(&table).await;
    let others = CommitRequest::new(
        base.token.clone(),
        CommitId::new(2_000),
        None,
        (2..30).map(entry),
        [],
        [],
    );
    assert!(matches!(
        table.commit(&others).await.unwrap(),
        CommitOutcome::Committed(_)
    ));
    for n in 1..30 {
        shell.delete(&beats(n)).await.unwrap();
    }
    let base = read(&table).await;
    let all = (1..30).map(|n| entry(n).address.row_key());
    let remove = CommitRequest::new(base.token.clone(), CommitId::new(2_001), None, [], [], all);
    assert!(matches!(
        table.commit(&remove).await.unwrap(),
        CommitOutcome::Committed(_)
    ));
    assert!(read(&table).await.rows.is_empty());
    table.delete().await.unwrap();
    assert!(
        shell.entities().await.unwrap().is_empty(),
        "something was left"
    );
}

#[tokio::test]
async fn a_table_of_orleans_is_left_alone() {
    let server = server().await;
    let blue = cluster("orleans");
    let (table, shell) = (
        table(server.url(), &blue).await,
        Shell::of(server.url(), &blue).unwrap(),
    );
    initialize(&table).await.unwrap();
    let theirs = |n: u64| {
        Map::from_iter([
            ("DeploymentId".to_owned(), "blue".into()),
            ("MembershipVersion".to_owned(), n.to_string().into()),
        ])
    };
    shell.put("!version", &theirs(7)).await.unwrap();
    let before = shell.entities().await.unwrap();
    for error in [
        initialize(&table).await.unwrap_err(),
        table.read(&ReadRequest::all()).await.unwrap_err(),
        table.delete().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), TableErrorKind::ForeignTable, "{error}");
    }
    assert_eq!(
        shell.entities().await.unwrap(),
        before,
        "something was written"
    );
    shell.delete("!version").await.unwrap();
    shell.delete("!cell").await.unwrap();
}

#[tokio::test]
async fn a_commit_to_a_deleted_table_is_not_applied() {
    let server = server().await;
    let blue = cluster("gone");
    let url = server
        .url()
        .replace("/membership?", &format!("/gone{:x}?", std::process::id()));
    let (table, shell) = (table(&url, &blue).await, Shell::of(&url, &blue).unwrap());
    initialize(&table).await.unwrap();
    let base = read(&table).await;
    let name = format!("Tables('gone{:x}')", std::process::id());
    let service = Shell::of(
        &url.replace(
            &format!("/gone{:x}?", std::process::id()),
            &format!("/{name}?"),
        ),
        &blue,
    )
    .unwrap();
    let (status, _, said) = service
        .ask(reqwest::Method::DELETE, "", "", None, &[])
        .await
        .unwrap();
    assert_eq!(status, 204, "{said}");
    for request in [joins(&base, 1), joins(&base, 1).again()] {
        let error = table.commit(&request).await.unwrap_err();
        assert_eq!(error.kind(), TableErrorKind::TableReplaced, "{error}");
    }
    let known = ReadRequest::all().with_known(base.token.clone());
    assert_eq!(
        table.read(&known).await.unwrap_err().kind(),
        TableErrorKind::TableReplaced
    );
    table.delete().await.unwrap();
    initialize(&table).await.unwrap();
    assert_eq!(
        table
            .commit(&joins(&base, 1))
            .await
            .map_err(|e| e.kind())
            .err(),
        None,
        "the same id of the table: the version row is the same"
    );
    table.delete().await.unwrap();
    assert!(shell.entities().await.unwrap().is_empty());
}
