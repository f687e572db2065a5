//! Requests to be dialled back that name the address of somebody else: a cluster must not send its
//! connections where a message says.

use std::time::Duration;

use membership::protocol::{Header, Message};
use membership::{ClusterView, SiloAddress};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::cluster::{Cluster, Member};
use super::stranger::Newcomer;
use super::transport::TappedTransport;
use crate::common::loopback;

/// Requests to dial an endpoint, or another silo, in every way that a header allows.
fn requests(honest: &Header, endpoint: SiloAddress, other: SiloAddress) -> Vec<(Header, Message)> {
    let ask = |from: SiloAddress, endpoint: SiloAddress| {
        let mut header = honest.clone();
        header.from = from;
        let endpoint = endpoint.endpoint();
        (
            header,
            Message::DialMe {
                nonce: 66,
                endpoint,
            },
        )
    };
    vec![
        ask(honest.from, endpoint),
        ask(honest.from, other),
        ask(endpoint, endpoint),
        ask(other, other),
        ask(other, endpoint),
    ]
}

/// Has a silo dial the liar, which it may ask for; earlier requests are handled before.
async fn dialled_back(liar: &TappedTransport, silo: SiloAddress, nonce: u64) {
    let endpoint = liar.me().endpoint();
    let ask = || liar.say(silo, Message::DialMe { nonce, endpoint });
    liar.until_heard(ask, |header, body| {
        header.from == silo && *body == Message::DialBack { nonce }
    })
    .await;
}

async fn adopted(silo: &Member, version: u64) -> ClusterView {
    silo.refresh(Some(version)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_dialled_for_another() {
    let ours = Cluster::start().await;
    ours.probes_go_on().await;
    let (liar, view) = (ours.liar(), ours.as_read());
    let [silo, other, ..] = ours.honest() else {
        panic!("more than two silos")
    };
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let listening = SiloAddress::at(listener.local_addr().unwrap(), other.me().epoch());
    let accepted = other.stats().accepted;

    for (header, body) in requests(&liar.header(silo.me()), listening, other.me()) {
        liar.say_with(&header, silo.me().endpoint(), body);
    }
    let mut newcomer = Newcomer::knowing(&view).await;
    let header = newcomer.header(&view, silo.me());
    for (header, body) in requests(&header, listening, other.me()) {
        newcomer.say(&header, body);
    }
    newcomer.answered(&header).await;
    dialled_back(&liar, silo.me(), 1).await;
    // Requests of silos without a row wait for the next view.
    adopted(silo, ours.change(other.me())).await;
    dialled_back(&liar, silo.me(), 2).await;

    let dialled = timeout(Duration::from_secs(1), listener.accept()).await;
    assert!(dialled.is_err(), "{dialled:?}");
    assert_eq!(other.stats().accepted, accepted);
}
