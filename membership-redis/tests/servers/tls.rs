//! Encrypted connections: a private authority, a client certificate, and servers that must not be
//! trusted.

use conformance_tests::proxy::Proxy;
use membership_core::TableErrorKind;
use membership_testbed::{Kind, Options, Server};

use crate::support::*;
use conformance_tests::helpers::*;

async fn encrypted(args: &[&str]) -> Server {
    let args = args.iter().map(|arg| (*arg).to_owned()).collect();
    Server::start(
        Kind::Redis,
        Options {
            tls: true,
            args,
            password: Some(SECRET.to_owned()),
            ..Options::default()
        },
    )
    .await
    .unwrap()
}

#[tokio::test]
async fn a_private_authority_is_trusted_if_it_is_named() {
    let server = encrypted(&[]).await;
    let ca = server.tls().unwrap().ca.display().to_string();
    let table = connect(&format!("{}/?tls_ca={ca}", server.url()))
        .await
        .unwrap();
    let token = fill(&table, 3).await;
    server.kill().await.unwrap();
    assert!(read_kind(&table, Some(&token)).await.is_err());
    server.start_again().await.unwrap();
    until("the server is back", async || {
        read_kind(&table, Some(&token)).await == Err(TableErrorKind::TableReplaced)
    })
    .await;

    for wrong in ["", "?tls_ca=/nowhere/ca.pem"] {
        let error = connect(&format!("{}/{wrong}", server.url()))
            .await
            .unwrap_err();
        assert!(
            matches!(
                error.kind(),
                TableErrorKind::Unavailable | TableErrorKind::Configuration
            ),
            "{error}"
        );
        assert!(!error.to_string().contains(SECRET), "{error}");
    }
    let error = connect(server.url()).await.unwrap_err();
    assert!(
        error.kind() == TableErrorKind::Configuration && error.to_string().contains("tls_ca"),
        "{error}"
    );
    let plain = server.url().replace("rediss://", "redis://");
    let error = connect(&format!("{plain}?connect_timeout=1s"))
        .await
        .unwrap_err();
    assert!(
        error.kind() == TableErrorKind::Unavailable && error.to_string().contains("rediss://"),
        "{error}"
    );
}

#[tokio::test]
async fn a_client_can_show_a_certificate() {
    let server = encrypted(&["--tls-auth-clients", "yes"]).await;
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
    assert_eq!(
        connect(&format!("{}/?tls_ca={ca}", server.url()))
            .await
            .unwrap_err()
            .kind(),
        TableErrorKind::Unavailable
    );
}

/// Certificates are replaced while silos run: the next connection takes the files as they are then.
#[tokio::test]
async fn new_certificates_need_no_restart() {
    let (old, new) = (
        encrypted(&["--tls-auth-clients", "yes"]).await,
        encrypted(&["--tls-auth-clients", "yes"]).await,
    );
    let folder = old.folder().unwrap().join("rotated");
    std::fs::create_dir(&folder).unwrap();
    let file = |name: &str| folder.join(name).display().to_string();
    let put = |server: &Server| {
        let tls = server.tls().unwrap();
        for (name, path) in [
            ("ca", &tls.ca),
            ("certificate", &tls.client_certificate),
            ("key", &tls.client_key),
        ] {
            std::fs::copy(path, file(name)).unwrap();
        }
    };
    put(&old);
    let proxy = Proxy::to(old.address()).unwrap();
    let table = connect(&format!(
        "rediss://:{SECRET}@{}/?tls_ca={}&tls_cert={}&tls_key={}",
        proxy.address(),
        file("ca"),
        file("certificate"),
        file("key")
    ))
    .await
    .unwrap();
    fill(&table, 1).await;
    proxy.set_target(new.address());
    proxy.cut_connections();
    until("the new authority is not trusted yet", async || {
        read_kind(&table, None).await == Err(TableErrorKind::Configuration)
    })
    .await;
    put(&new);
    assert_eq!(
        read_kind(&table, None).await,
        Err(TableErrorKind::NotInitialized)
    );
}
