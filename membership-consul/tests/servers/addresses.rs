//! Wrong hosts, ports, schemes and options: one clear line each. Clauses T13 and T15.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use membership_consul::ConsulTable;
use membership_core::{CommitId, MembershipTable, TableErrorKind, TableId, VersionToken};
use membership_testbed::{Kind, Options, Server, free_port};

use crate::support::*;
use conformance_tests::helpers::*;
use conformance_tests::proxy::Proxy;

async fn refused(url: &str, kind: TableErrorKind, words: &[&str]) {
    let error = connect(url)
        .await
        .map(|table| panic!("{url}: {table:?}"))
        .unwrap_err();
    let text = error.to_string();
    assert!(
        error.kind() == kind && words.iter().all(|word| text.contains(word)),
        "{url}: {error}"
    );
    assert!(
        !text.contains('\n') && !format!("{error:?}").contains(SECRET),
        "{error}"
    );
}

#[tokio::test]
async fn servers_that_do_not_answer_are_named() {
    let nobody = format!("127.0.0.1:{}", free_port().unwrap());
    refused(
        &format!("consul://:{SECRET}@{nobody}"),
        TableErrorKind::Unavailable,
        &[&nobody, "refused"],
    )
    .await;
    refused(
        &format!("consul+https://:{SECRET}@{nobody}"),
        TableErrorKind::Unavailable,
        &[&nobody, "refused"],
    )
    .await;
    refused(
        &format!("consul://:{SECRET}@no-such-host.invalid"),
        TableErrorKind::Unavailable,
        &["no-such-host.invalid:8500"],
    )
    .await;
    // A listener that never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let began = Instant::now();
    refused(
        &format!("consul://:{SECRET}@{address}?operation_timeout=500ms"),
        TableErrorKind::Unavailable,
        &[&address, "500ms"],
    )
    .await;
    assert!(began.elapsed() < Duration::from_secs(20));
}

/// A server of another kind is not taken for an empty table.
#[tokio::test]
async fn another_server_is_not_taken_for_consul() {
    for (answer, kind) in [
        (
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            TableErrorKind::Configuration,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi",
            TableErrorKind::Configuration,
        ),
        (
            "HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            TableErrorKind::Configuration,
        ),
        ("-ERR unknown command\r\n", TableErrorKind::Unavailable),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        refused(&format!("consul://:{SECRET}@{address}"), kind, &[&address]).await;
    }
}

/// A proxy that starts to answer while the table is in use: its answer to a write does not show the
/// outcome, and is no success.
#[tokio::test]
async fn a_foreign_answer_to_a_write_leaves_the_outcome_unknown() {
    for said in [
        "{}",
        "{\"Results\":null,\"Errors\":null}",
        "{\"Results\":[]}",
        "{\"status\":\"ok\"}",
        "[]",
        "<html>",
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, mut request) = (stream.unwrap(), [0; 16_384]);
                let read = stream.read(&mut request).unwrap_or(0);
                // Reads are answered like by a Consul without keys.
                let answer = match request[..read].starts_with(b"GET") {
                    true => "404 Not Found\r\nX-Consul-Index: 7\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned(),
                    false => format!("200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{said}", said.len()),
                };
                let _ = stream.write_all(format!("HTTP/1.1 {answer}").as_bytes());
            }
        });
        let table = connect(&format!("consul://{address}")).await.unwrap();
        let unknown = TableErrorKind::OutcomeUnknown;
        assert_eq!(
            initialize(&table).await.unwrap_err().kind(),
            unknown,
            "{said}"
        );
        // The token carries the number of rows, so that nothing needs to be read first.
        let token = VersionToken::new(TableId::new(7), 3, CommitId::new(3), &2_u64.to_be_bytes());
        for request in [insert(&token, [7]), insert(&token, [7]).again()] {
            assert_eq!(commit_kind(&table, &request).await, unknown, "{said}");
        }
        let asked = table.read_row(&silo(1), None).await.unwrap_err().kind();
        let nothing = said.starts_with("{\"Results\"");
        assert_eq!(
            asked,
            if nothing {
                TableErrorKind::NotInitialized
            } else {
                TableErrorKind::Configuration
            },
            "{said}"
        );
        let beat = table
            .update_i_am_alive(&heartbeat(1, 1))
            .await
            .unwrap_err()
            .kind();
        assert_eq!(
            beat,
            if nothing {
                TableErrorKind::NoSuchRow
            } else {
                TableErrorKind::Configuration
            },
            "{said}"
        );
    }
}

#[tokio::test]
async fn unsupported_options_are_reported() {
    let server = server().await;
    let at = server.address().to_string();
    let wrong = TableErrorKind::Configuration;
    refused(
        &format!("{}?datacenter=mars", server.url()),
        wrong,
        &[&at, "datacenter"],
    )
    .await;
    refused(
        &format!("{}?namespace=moon", server.url()),
        wrong,
        &[&at, "ns"],
    )
    .await;
    // This edition has no partitions: a client that names one gets the same table as all others.
    let (apart, all) = (
        connect(&format!("{}?partition=mars", server.url()))
            .await
            .unwrap(),
        connect(server.url()).await.unwrap(),
    );
    let token = fill(&apart, 2).await;
    assert_eq!(
        read(&all).await.0.token,
        token,
        "the README says that partitions are ignored"
    );
    all.delete().await.unwrap();
    refused(
        &format!("consul+https://:{SECRET}@{at}"),
        wrong,
        &[&at, "consul://"],
    )
    .await;
    refused(
        &format!("consul://:{SECRET}x@{at}"),
        TableErrorKind::PermissionDenied,
        &[&at, "token"],
    )
    .await;
    // A dead server in the list does not matter.
    let nobody = free_port().unwrap();
    let two = format!("consul://:{SECRET}@127.0.0.1:{nobody},{at}");
    let table = connect(&two).await.unwrap();
    let token = fill(&table, 2).await;
    server.kill().await.unwrap();
    let mut error = table.commit(&insert(&token, [7])).await.unwrap_err();
    if error.kind() == TableErrorKind::OutcomeUnknown {
        // A connection that the kill has closed took the request before this process heard of it.
        error = table.commit(&insert(&token, [7])).await.unwrap_err();
    }
    assert!(
        error.kind() == TableErrorKind::Unavailable && error.to_string().contains("127.0.0.1:"),
        "{error}"
    );
    server.start_again().await.unwrap();
    commit(&table, &insert(&token, [7])).await;
}

#[tokio::test]
async fn both_sides_check_certificates() {
    let args = vec!["-hcl=verify_incoming = true".to_owned()];
    let options = Options {
        tls: true,
        local: true,
        password: Some(SECRET.to_owned()),
        args,
        ..Options::default()
    };
    let server = Server::start(Kind::Consul, options).await.unwrap();
    let tls = server.tls().unwrap();
    let (ca, certificate, key) = (
        tls.ca.display(),
        tls.client_certificate.display(),
        tls.client_key.display(),
    );
    let (url, at, wrong) = (
        server.url(),
        server.address().to_string(),
        TableErrorKind::Configuration,
    );
    refused(url, wrong, &[&at, "not trusted", "tls_ca"]).await;
    refused(&format!("{url}?tls_ca={key}"), wrong, &["no certificate"]).await;
    refused(
        &format!("{url}?tls_ca={ca}"),
        wrong,
        &[&at, "client's certificate", "tls_cert"],
    )
    .await;
    refused(
        &format!(
            "{}?operation_timeout=3s",
            url.replace("consul+https", "consul")
        ),
        wrong,
        &[&at, "consul+https://"],
    )
    .await;
    let table: ConsulTable = connect(&format!(
        "{url}?tls_ca={ca}&tls_cert={certificate}&tls_key={key}"
    ))
    .await
    .unwrap();
    let token = fill(&table, 2).await;
    assert_eq!(read(&table).await.0.token, token);
}

#[tokio::test]
async fn requests_above_the_limit_are_reported() {
    let args = vec!["-hcl=limits { kv_max_value_size = 20000 txn_max_req_len = 20000 }".to_owned()];
    let options = Options {
        local: true,
        password: Some(SECRET.to_owned()),
        args,
        ..Options::default()
    };
    let server = Server::start(Kind::Consul, options).await.unwrap();
    let table = connect(server.url()).await.unwrap();
    let token = fill(&table, 1).await;
    let mut large = entry(7);
    large.info.silo_name = "x".repeat(30_000);
    let error = table
        .commit(&insert_entry(&token, large))
        .await
        .unwrap_err();
    assert!(
        error.kind() == TableErrorKind::LimitExceeded && error.to_string().contains("too large"),
        "{error}"
    );
    assert_eq!(read(&table).await.0.token, token);
}

/// The variable with which a test starts itself again, in an environment that names the server.
const CHILD: &str = "MEMBERSHIP_TEST_CONSUL_URL_WITHOUT_HOST";

/// As the program `consul` does, where the URL names no host.
#[tokio::test]
async fn the_server_of_the_environment_is_used() {
    let server = server().await;
    let at = server.address().to_string();
    let url = format!("consul://:{SECRET}@");
    let says = |url: &str, variables: &[(&str, &str)]| {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "addresses::child_without_a_host", "--nocapture"]);
        child.env(CHILD, url).envs(variables.iter().copied());
        let said = child.output().unwrap();
        assert!(said.status.success(), "{said:?}");
        String::from_utf8_lossy(&said.stderr).into_owned()
    };
    let address = |text: &str| [("CONSUL_HTTP_ADDR", text.to_owned())];
    for text in [at.clone(), format!("http://{at}"), format!("http://{at}/")] {
        let said = says(
            &url,
            &address(&text).each_ref().map(|(n, v)| (*n, v.as_str())),
        );
        assert!(said.contains("it is there"), "{text}: {said}");
    }
    // A host in the URL comes first.
    let other = format!("{url}{at}");
    let said = says(&other, &[("CONSUL_HTTP_ADDR", "127.0.0.1:1")]);
    assert!(said.contains("it is there"), "{said}");
    // The server does not speak TLS.
    for (text, ssl) in [(format!("https://{at}"), "0"), (at.clone(), "true")] {
        let said = says(
            &url,
            &[("CONSUL_HTTP_ADDR", &text), ("CONSUL_HTTP_SSL", ssl)],
        );
        assert!(said.contains("TLS"), "{text} {ssl}: {said}");
    }
    let said = says(&url, &[("CONSUL_HTTP_ADDR", "unix:///run/consul.sock")]);
    assert!(said.contains("CONSUL_HTTP_ADDR"), "{said}");
}

/// Does nothing unless it is the process above.
#[tokio::test]
async fn child_without_a_host() {
    let Ok(url) = std::env::var(CHILD) else {
        return;
    };
    match connect(&url).await {
        Ok(_) => eprintln!("it is there"),
        Err(error) => eprintln!("{error}"),
    }
}

/// Whoever replaces certificates replaces the files, under running silos.
#[tokio::test]
async fn certificate_files_are_read_again_when_they_are_refused() {
    let encrypted = async || {
        let options = Options {
            tls: true,
            ..Options::default()
        };
        Server::start(Kind::Consul, options).await.unwrap()
    };
    let (old, new) = (encrypted().await, encrypted().await);
    let file = std::env::temp_dir().join(format!("membership-consul-{}.pem", std::process::id()));
    let authority = |server: &Server| std::fs::copy(&server.tls().unwrap().ca, &file).unwrap();
    authority(&old);
    let proxy = Proxy::to(old.address()).unwrap();
    let url = old
        .url()
        .replace(&old.address().to_string(), &proxy.address().to_string());
    let table = connect(&format!("{url}?tls_ca={}", file.display()))
        .await
        .unwrap();
    fill(&table, 3).await;
    // The same address shows a certificate of another authority from now on.
    proxy.set_target(new.address());
    proxy.cut_connections();
    let refused = read_kind(&table, None).await;
    assert_eq!(refused, Err(TableErrorKind::Configuration));
    authority(&new);
    initialize(&table).await.unwrap();
    std::fs::remove_file(&file).unwrap();
    commit(&table, &insert(&read(&table).await.0.token, [5])).await;
}
