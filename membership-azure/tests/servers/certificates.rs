//! Certificates that are replaced under a running client.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use conformance_tests::helpers::{fill, read, read_kind};
use membership_core::{MembershipTable, ReadRequest, TableErrorKind};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::support::server;
use crate::trouble::{cluster, table};

/// A certificate of an authority of its own, which is written to this file.
fn certificate(authority: &Path) -> TlsAcceptor {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(authority, made.cert.pem()).unwrap();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth();
    let config = config.with_single_cert(vec![made.cert.der().clone()], key);
    TlsAcceptor::from(Arc::new(config.unwrap()))
}

/// Encrypts what passes to a server, with the certificate of the moment.
async fn encrypted(server: SocketAddr, shown: Arc<Mutex<TlsAcceptor>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let acceptor = shown.lock().unwrap().clone();
            tokio::spawn(async move {
                let mut client = acceptor.accept(client).await.ok()?;
                let mut server = TcpStream::connect(server).await.ok()?;
                tokio::io::copy_bidirectional(&mut client, &mut server)
                    .await
                    .ok()
            });
        }
    });
    address
}

/// Whoever replaces certificates replaces the files, under running silos.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_file_of_authorities_is_read_again_when_a_certificate_is_refused() {
    let (server, cluster) = (server().await, cluster("certificates"));
    let owner = table(server.url(), &cluster).await;
    fill(&owner, 3).await;
    let file = std::env::temp_dir().join(format!("membership-azure-{}.pem", std::process::id()));
    let shown = Arc::new(Mutex::new(certificate(&file)));
    let tunnel = encrypted(server.address(), Arc::clone(&shown)).await;
    let old = std::fs::read(&file).unwrap();
    let plain = format!("http://{}", server.address());
    let url = server.url().replace(&plain, &format!("https://{tunnel}"));
    let client = table(&format!("{url}&tls_ca={}", file.display()), &cluster).await;
    let known = read(&client).await.0.token;
    // The same address shows a certificate of another authority from now on, which the file does
    // not have yet.
    *shown.lock().unwrap() = certificate(&file);
    let new = std::fs::read(&file).unwrap();
    std::fs::write(&file, old).unwrap();
    let anew = ReadRequest::all().with_new_connection(true);
    let refused = client.read(&anew).await.map(drop).map_err(|e| e.kind());
    assert_eq!(refused, Err(TableErrorKind::Configuration));
    std::fs::write(&file, new).unwrap();
    let answer = read_kind(&client, Some(&known)).await;
    std::fs::remove_file(&file).unwrap();
    assert_eq!(answer, Ok(()), "the file was not read again");
    owner.delete().await.unwrap();
}
