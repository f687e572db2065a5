//! The inbox of a silo is bounded in memory, whatever the messages say.

use bytes::Bytes;
use futures_util::FutureExt;
use membership::protocol::{Header, LinkId, Message};
use membership::transport::{Inbound, MessageInbox, PeerIdentity, encode};
use membership::{Delta, InstanceId, Row, SharedSettings, TableId, VersionRow};

fn header() -> Header {
    Header::new(1, "10.0.0.1:1@1".parse().unwrap(), InstanceId::new(1))
}

/// A view of rows that have two bytes each, and some 200 in memory.
fn small_rows(count: usize) -> Bytes {
    let version_row = VersionRow::initial(TableId::new(7), SharedSettings::default());
    let token = version_row.token(&[]);
    let rows = vec![Row::decode("", ""); count];
    let delta = Delta::new(None, version_row, token, 0, rows, Vec::new());
    let body = Message::Delta(Box::new(delta));
    encode(&header(), &body).unwrap().into()
}

#[tokio::test]
async fn views_of_many_small_rows_wait_until_others_are_handled() {
    let (inbox, mut messages) = MessageInbox::channel(1000);
    let view = small_rows(30_000);
    let deliver = |bytes: &Bytes| {
        let peer = PeerIdentity::Proven(InstanceId::new(1));
        inbox.deliver(LinkId(1), peer, bytes.clone()).now_or_never()
    };
    let mut inside = 0;
    while let Some(delivered) = deliver(&view) {
        delivered.unwrap();
        inside += 1;
        assert!(inside < 60, "more than 256 MiB of memory");
    }
    assert!(inside > 20, "{inside}");

    let probe = encode(&header(), &Message::Probe { nonce: 1 }).unwrap();
    deliver(&probe.into()).unwrap().unwrap();
    let first = messages.recv().await.unwrap();
    assert!(
        matches!(&first, Inbound::Message { body, .. } if **body == Message::Probe { nonce: 1 }),
        "{first:?}"
    );
    messages.recv().await.unwrap();
    deliver(&view).unwrap().unwrap();
    assert!(deliver(&view).is_none());
}
