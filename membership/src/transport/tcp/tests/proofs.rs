//! What a hello proves: neither repeated, nor reflected, nor relayed, nor for another cluster.

use std::net::SocketAddr;

use membership_core::{
    ClusterKey, ClusterKeys, ClusterView, InitializeRequest, InstanceId, Rows, SharedSettings,
    Snapshot, TableId,
};

use super::super::handshake::{self, HandshakeError, Me, Secured, Side, Versions};
use crate::transport::Hello;
use crate::transport::tls::Proven;

fn silo(cluster: &str, instance: u128) -> Me {
    let advertise: SocketAddr = "10.0.3.9:7100".parse().unwrap();
    let cluster = cluster.parse().unwrap();
    let mut me = Me::from(&Hello::new(cluster, advertise, InstanceId::new(instance)));
    me.view = Some(view(7));
    me
}

/// A table without rows.
pub(super) fn view(table_id: u128) -> ClusterView {
    let settings = SharedSettings::default();
    let key = ClusterKey::new([7; 32]);
    let row = InitializeRequest::new(TableId::new(table_id), settings, key).version_row();
    let snapshot = Snapshot::new(row.token(&[]), row, Rows::new());
    ClusterView::confirmed(snapshot, None)
}

fn link(peer: u128, binding: u8) -> Secured {
    Secured {
        peer: Proven::Key(InstanceId::new(peer)),
        binding: [binding; 32],
    }
}

/// The hello of `from`, on a connection with this binding, in the role of the side that dialled.
fn hello(from: &Me, binding: u8) -> Vec<u8> {
    let said = from.introduce(Side::Dialled, Some(&link(0, binding)));
    handshake::encode(crate::transport::Kind::Table, Versions::MINE, &said, None).unwrap()[13..]
        .to_vec()
}

#[test]
fn a_newcomer_proves_that_it_has_read_the_table() {
    let (a, b) = (silo("blue", 1), silo("blue", 2));
    let (heard, _) = handshake::check(&hello(&a, 5), &b, Side::Dialled, Some(&link(1, 5))).unwrap();
    assert_eq!(heard.instance, InstanceId::new(1));
    assert_eq!(
        heard.fingerprint, None,
        "within TLS nothing names the cluster"
    );
}

#[test]
fn a_hello_is_of_no_use_to_anybody_else() {
    let (a, b) = (silo("blue", 1), silo("blue", 2));
    let said = hello(&a, 5);
    let judged = |me: &Me, side, secured| handshake::check(&said, me, side, Some(&secured));
    // Recorded on one connection and repeated, or relayed, on another.
    assert!(matches!(
        judged(&b, Side::Dialled, link(1, 6)),
        Err(HandshakeError::Unproven)
    ));
    // By another process: the key of the connection is not the one that the hello names.
    assert!(matches!(
        judged(&b, Side::Dialled, link(3, 5)),
        Err(HandshakeError::OtherInstance)
    ));
    // Reflected to the side that said it.
    let c = silo("blue", 3);
    assert!(matches!(
        judged(&c, Side::Accepted, link(1, 5)),
        Err(HandshakeError::Unproven)
    ));
    // In another cluster with the same key.
    assert!(matches!(
        judged(&silo("green", 2), Side::Dialled, link(1, 5)),
        Err(HandshakeError::Unproven)
    ));
}

#[test]
fn who_changes_a_hello_proves_nothing() {
    let (a, b) = (silo("blue", 1), silo("blue", 2));
    let mut said = a.introduce(Side::Dialled, Some(&link(0, 5)));
    said.instance = InstanceId::new(3);
    let forged =
        handshake::encode(crate::transport::Kind::Table, Versions::MINE, &said, None).unwrap();
    assert!(matches!(
        handshake::check(&forged[13..], &b, Side::Dialled, Some(&link(3, 5))),
        Err(HandshakeError::Unproven)
    ));
    said = a.introduce(Side::Dialled, Some(&link(0, 5)));
    said.advertise = "10.9.9.9:1".parse().unwrap();
    let forged =
        handshake::encode(crate::transport::Kind::Table, Versions::MINE, &said, None).unwrap();
    assert!(matches!(
        handshake::check(&forged[13..], &b, Side::Dialled, Some(&link(1, 5))),
        Err(HandshakeError::Unproven)
    ));
}

#[test]
fn who_has_not_read_the_table_believes_itself_alone() {
    let a = silo("blue", 1);
    let mut early = silo("blue", 2);
    early.view = None;
    assert!(matches!(
        handshake::check(&hello(&a, 5), &early, Side::Dialled, Some(&link(1, 5))),
        Err(HandshakeError::TooEarly)
    ));
    let own = hello(&early, 5);
    assert!(handshake::check(&own, &early, Side::Dialled, Some(&link(2, 5))).is_ok());
}

#[test]
fn a_secret_is_demanded_of_everybody_besides() {
    let keys = |bytes: &[u8]| {
        let keys = bytes.iter().map(|byte| ClusterKey::new([*byte; 32]));
        Some(keys.collect::<ClusterKeys>())
    };
    let (mut a, mut b) = (silo("blue", 1), silo("blue", 2));
    let judged = |a: &Me, b: &Me| {
        handshake::check(&hello(a, 5), b, Side::Dialled, Some(&link(1, 5))).map(drop)
    };
    b.secret = keys(&[1]);
    assert!(matches!(judged(&a, &b), Err(HandshakeError::NoSecret(_))));
    a.secret = keys(&[2, 1]);
    assert!(
        matches!(judged(&a, &b), Err(HandshakeError::WrongSecret(_))),
        "the first key proves"
    );
    b.secret = keys(&[1, 2]);
    assert!(judged(&a, &b).is_ok(), "and each one is accepted");
    // A key of the table is no secret.
    a.secret = None;
    let mut said = a.introduce(Side::Dialled, Some(&link(0, 5)));
    said.secret = said.proofs.first().copied();
    b.secret = keys(&[7]);
    let forged =
        handshake::encode(crate::transport::Kind::Table, Versions::MINE, &said, None).unwrap();
    assert!(matches!(
        handshake::check(&forged[13..], &b, Side::Dialled, Some(&link(1, 5))),
        Err(HandshakeError::WrongSecret(_))
    ));
}
