//! A process that restarts at the same address is reached at once.

use std::time::Duration;

use membership::protocol::{Destination, Message};
use membership::transport::{TcpConfig, TcpTransport, Transport};
use tokio::time::{Instant, sleep};

use super::support::{Peer, answer};

#[tokio::test]
async fn a_new_process_at_the_same_port_is_reached_within_200_ms() {
    let (mut a, mut b) = (Peer::new(1).await, Peer::new(2).await);
    let endpoint = b.endpoint();
    a.probe(endpoint, 1);
    answer(&mut b).await;
    a.message().await;

    // Several restarts, of which the fastest counts, because the machine may be busy.
    let mut quickest = Duration::MAX;
    for restart in 0..5 {
        // A crash: the system closes the sockets.
        drop(b);
        a.until(|s| s.open == 0).await;
        a.probe(endpoint, 2);
        assert_eq!(a.refusal().await, endpoint);

        // The old listener is closed by a task of its own.
        while TcpTransport::bind(endpoint).await.is_err() {
            sleep(Duration::from_millis(1)).await;
        }
        b = Peer::with(3 + restart, endpoint, "test", TcpConfig::default()).await;
        let begun = Instant::now();
        a.probe(endpoint, 3);
        answer(&mut b).await;
        assert_eq!(a.message().await.1.instance, b.instance);
        quickest = quickest.min(begun.elapsed());
    }
    assert!(quickest < Duration::from_millis(200), "{quickest:?}");
}

#[tokio::test]
async fn a_new_process_that_introduces_itself_replaces_the_old_connection() {
    let (mut a, mut b) = (Peer::new(1).await, Peer::new(2).await);
    a.probe(b.endpoint(), 1);
    answer(&mut b).await;
    a.message().await;
    // Another process claims b's address. The claim does not bring it any message: b's address is
    // dialled again, and leads to b.
    let claimant = TcpTransport::bind("127.0.0.1:0".parse().unwrap())
        .await
        .unwrap();
    let (inbox, _receiver) = membership::transport::MessageInbox::channel(8);
    let instance = membership::InstanceId::new(66);
    let hello = membership::transport::Hello::new(b.cluster.clone(), b.endpoint(), instance);
    claimant.start(hello, inbox).await.unwrap();
    claimant.update(None, &super::support::empty_table([7; 32]));
    let probe = std::sync::Arc::new(Message::Probe { nonce: 9 });
    let probe = b.encoder.encode(&b.header(), &probe).unwrap();
    claimant.send(Destination::Endpoint(a.endpoint()), probe);
    assert_eq!(a.message().await.2, Message::Probe { nonce: 9 });
    a.probe(b.endpoint(), 2);
    answer(&mut b).await;
    assert_eq!(a.message().await.2, Message::ProbeAck { nonce: 2 });
    assert_eq!(a.transport.stats().dialled, 2);
}
