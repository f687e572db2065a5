//! Messages larger than a frame.

use std::sync::Arc;
use std::time::Duration;

use membership::protocol::{Destination, Message};
use membership::transport::{TcpConfig, Transport};
use membership::{
    CommitId, CommitRecord, Delta, InstanceId, MembershipEntry, Row, Rows, SharedSettings,
    SiloAddress, TableId, VersionRow, WallTime,
};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::support::{Peer, acquaint, answer, any_port, recorded_hello};

/// A whole snapshot of that many rows.
pub fn snapshot(count: u16) -> Message {
    let mut rows = Rows::new();
    for i in 0..count {
        let [high, low] = i.to_be_bytes();
        let address = SiloAddress::new([10, 1, high, low].into(), 7100, 1_763_000_000_000);
        let mut entry = MembershipEntry::new(
            address,
            InstanceId::new(i.into()),
            WallTime::from_millis(1_763_000_000_000),
        );
        entry.info.host_name = format!("host-{i}.example.org");
        entry.info.silo_name = format!("silo-{i}");
        rows.insert(Row::encode(entry));
    }
    let mut version_row = VersionRow::initial(TableId::new(7), SharedSettings::default());
    version_row.version = 1;
    version_row.recent.push(CommitRecord::new(
        1,
        CommitId::new(1),
        None,
        membership::ChangedKeys::Count(count.into()),
    ));
    let token = version_row.token(&[]);
    let (digest, all) = (rows.digest(), rows.iter().cloned().collect());
    Message::Delta(Box::new(Delta::new(
        None,
        version_row,
        token,
        digest,
        all,
        Vec::new(),
    )))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_rows_arrive_at_many() {
    let a = Peer::new(1).await;
    let mut others = Vec::new();
    for i in 0..5 {
        others.push(Peer::new(10 + i).await);
    }
    acquaint(&others.iter().chain([&a]).collect::<Vec<_>>());
    let body = Arc::new(snapshot(10_000));
    for other in &others {
        a.send_shared(Destination::Endpoint(other.endpoint()), &body);
    }
    for other in &mut others {
        let (_, _, received) = other.message().await;
        assert_eq!(received, *body);
        let Message::Delta(delta) = received else {
            panic!()
        };
        assert_eq!(delta.resolve(None).unwrap().rows.len(), 10_000);
    }
    assert!(a.transport.stats().bytes_sent > 5 * 1_000_000);
}

#[tokio::test]
async fn a_probe_overtakes_a_snapshot_that_is_under_way() {
    let listener = TcpListener::bind(any_port()).await.unwrap();
    let endpoint = listener.local_addr().unwrap();
    let hello = recorded_hello().await;
    let a = Peer::plain(1).await;
    a.send(Destination::Endpoint(endpoint), snapshot(30_000));
    let (mut slow, _) = listener.accept().await.unwrap();
    slow.write_all(&hello).await.unwrap();
    // The writer has started, and cannot continue because the peer does not read.
    a.until(|s| s.queued_bytes == 0).await;
    a.probe(endpoint, 1);
    slow.read_exact(&mut [0; 8]).await.unwrap();
    let (mut kinds, mut whole, mut pieces) = (Vec::new(), None, 0);
    let both = async {
        while !kinds.contains(&8) || whole != Some(pieces) {
            let mut head = [0; 5];
            slow.read_exact(&mut head).await.unwrap();
            let mut content =
                vec![0; u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize - 1];
            slow.read_exact(&mut content).await.unwrap();
            match head[4] {
                3 => {
                    whole = content
                        .first_chunk()
                        .map(|total| u32::from_be_bytes(*total) as usize);
                    pieces += content.len() - 4;
                }
                4 => pieces += content.len(),
                _ => {}
            }
            kinds.push(head[4]);
        }
    };
    tokio::time::timeout(Duration::from_mins(1), both)
        .await
        .expect("a snapshot and a probe");
    // A hello, the start, pieces, the probe, more pieces.
    assert_eq!(kinds[..3], [0, 3, 4]);
    assert_ne!(
        kinds.last(),
        Some(&8),
        "the probe comes before the end of the snapshot: {kinds:?}"
    );
}

#[tokio::test]
async fn a_message_above_the_bound_is_reported_and_dropped() {
    let mut config = TcpConfig::default();
    config.max_message_bytes = 100_000;
    let mut a = Peer::with(1, any_port(), "test", config).await;
    let mut b = Peer::new(2).await;
    acquaint(&[&a, &b]);
    a.send(Destination::Endpoint(b.endpoint()), snapshot(1_000));
    let (to, reason) = a.failure().await;
    assert!(
        to == b.endpoint() && reason.contains("larger than the bound"),
        "{reason}"
    );
    assert_eq!(a.transport.stats().dropped_too_large, 1);
    a.probe(b.endpoint(), 1);
    answer(&mut b).await;
    a.message().await;
    // A receiver with a smaller bound protects itself.
    b.send(Destination::Endpoint(a.endpoint()), snapshot(1_000));
    a.until(|s| s.closed_oversized == 1).await;
    b.until(|s| s.open == 1).await;
    tokio::time::timeout(Duration::from_millis(1), a.inbox.recv())
        .await
        .unwrap_err();
}
