//! Encrypted connections: a private authority, a client certificate, and servers that must not be
//! trusted.

use conformance_tests::proxy::Proxy;
use membership_core::TableErrorKind;
use membership_testbed::{Kind, Options, Server};

use crate::support::*;
use conformance_tests::helpers::*;

async fn encrypted(password: Option<&str>, args: &[&str]) -> Server {
    let args = args.iter().map(|arg| (*arg).to_owned()).collect();
    Server::start(
        Kind::Etcd,
        Options {
            tls: true,
            args,
            password: password.map(str::to_owned),
            ..Options::default()
        },
    )
    .await
    .unwrap()
}

#[tokio::test]
async fn a_private_authority_is_trusted_if_it_is_named() {
    let server = encrypted(Some(SECRET), &[]).await;
    let ca = server.tls().unwrap().ca.display().to_string();
    let table = connect(&format!("{}/?tls_ca={ca}", server.url()))
        .await
        .unwrap();
    let token = fill(&table, 3).await;
    server.kill().await.unwrap();
    assert!(read_kind(&table, Some(&token)).await.is_err());
    server.start_again().await.unwrap();
    until("the server is back", async || {
        read_kind(&table, Some(&token)).await.is_ok()
    })
    .await;
    commit(&table, &insert(&token, [5])).await;

    let error = connect(server.url()).await.unwrap_err();
    assert!(
        error.kind() == TableErrorKind::Configuration && error.to_string().contains("tls_ca"),
        "{error}"
    );
    let error = connect(&format!("{}/?tls_ca=/nowhere/ca.pem", server.url()))
        .await
        .unwrap_err();
    assert!(
        error.kind() == TableErrorKind::Configuration
            && error.to_string().contains("/nowhere/ca.pem"),
        "{error}"
    );
    let plain = server.url().replace("etcd+https://", "etcd://");
    let error = connect(&plain).await.unwrap_err();
    assert!(error.to_string().contains("etcd+https://"), "{error}");
    assert!(!format!("{error:?}").contains(SECRET), "{error}");
}

#[tokio::test]
async fn a_client_can_show_a_certificate() {
    let ask = [
        "--client-cert-auth",
        "--trusted-ca-file={dir}/../tls/ca.pem",
    ];
    let server = encrypted(None, &ask).await;
    let tls = server.tls().unwrap();
    let (ca, certificate, key) = (
        tls.ca.display(),
        tls.client_certificate.display(),
        tls.client_key.display(),
    );
    let table = connect(&format!(
        "{}/?tls_ca={ca}&tls_cert={certificate}&tls_key={key}",
        server.url()
    ))
    .await
    .unwrap();
    fill(&table, 3).await;
    let error = connect(&format!("{}/?tls_ca={ca}", server.url()))
        .await
        .unwrap_err();
    assert!(
        error.kind() == TableErrorKind::Configuration && error.to_string().contains("tls_cert"),
        "{error}"
    );

    // With users, etcd refuses a client certificate that contains a name.
    let server = encrypted(Some(SECRET), &ask).await;
    let tls = server.tls().unwrap();
    let (ca, certificate, key) = (
        tls.ca.display(),
        tls.client_certificate.display(),
        tls.client_key.display(),
    );
    let error = connect(&format!(
        "{}/?tls_ca={ca}&tls_cert={certificate}&tls_key={key}",
        server.url()
    ))
    .await
    .unwrap_err();
    assert!(
        error.kind() == TableErrorKind::Configuration && error.to_string().contains("common name"),
        "{error}"
    );
}

/// Whoever replaces certificates replaces the files, under running silos.
#[tokio::test]
async fn certificate_files_are_read_again_when_they_are_refused() {
    let (old, new) = (encrypted(None, &[]).await, encrypted(None, &[]).await);
    let file = std::env::temp_dir().join(format!("membership-ca-{}.pem", std::process::id()));
    let authority = |server: &Server| std::fs::copy(&server.tls().unwrap().ca, &file).unwrap();
    authority(&old);
    let proxy = Proxy::to(old.address()).unwrap();
    let url = format!(
        "etcd+https://{}/?tls_ca={}",
        proxy.address(),
        file.display()
    );
    let table = connect(&url).await.unwrap();
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
