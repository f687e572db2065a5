//! Silos of one view whose secrets or certificates do not match: each side sees it.

use std::path::Path;

use futures_util::FutureExt as _;
use membership::protocol::{Destination, Message};
use membership::transport::{Secret, Security, TcpConfig, Transport};

use super::certificates::{self, Authority, Says, is_refused, signed};
use super::strangers::reaches;
use super::support::{Peer, acquaint, any_port};

pub const OLD: &str = "0123456789abcdef0123456789abcdef";
pub const NEW: &str = "fedcba9876543210fedcba9876543210";

/// A silo whose secret file has these lines, and its secret.
pub async fn with_secret(number: u128, folder: &Path, keys: &[&str]) -> (Peer, Secret) {
    let path = folder.join(number.to_string());
    std::fs::write(&path, keys.join("\n")).unwrap();
    let secret = Secret::file(path).unwrap();
    let mut config = TcpConfig::default();
    config.security = Security::table().with_secret(secret.clone());
    let peer = Peer::with(number, any_port(), "test", config).await;
    (peer, secret)
}

#[tokio::test]
async fn a_silo_of_the_view_with_another_secret_is_counted_at_both_sides() {
    let folder = tempfile::tempdir().unwrap();
    let (mut a, _) = with_secret(1, folder.path(), &[OLD]).await;
    let (b, _) = with_secret(2, folder.path(), &[NEW]).await;
    // Both are newcomers to each other, so this may be anybody.
    is_refused(&mut a, &b).await;
    b.until(|s| s.refused_secret == 1).await;
    acquaint(&[&a, &b]);
    is_refused(&mut a, &b).await;
    b.until(|s| s.refused_secret == 2).await;
    for peer in [&a, &b] {
        assert_eq!(peer.transport.stats().mismatched_members, 1);
    }
}

/// Where the files are in the right order at one side only, the other one's proof is the bad one.
#[tokio::test]
async fn the_side_that_refuses_an_answer_counts_it_too() {
    let folder = tempfile::tempdir().unwrap();
    let (mut a, _) = with_secret(1, folder.path(), &[NEW]).await;
    let (b, _) = with_secret(2, folder.path(), &[OLD, NEW]).await;
    acquaint(&[&a, &b]);
    let accepted = b.transport.stats().accepted;
    a.send(
        Destination::Fresh(b.endpoint()),
        Message::Probe { nonce: 1 },
    );
    let (_, reason) = a.failure().await;
    assert!(reason.contains("secret"), "{reason}");
    a.until(|s| s.mismatched_members == 1).await;
    b.until(|s| s.accepted == accepted + 1).await;
    assert_eq!(b.transport.stats().mismatched_members, 0);
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_counted_at_both_sides() {
    let [one, other] = [Authority::new(), Authority::new()];
    let mut a = certificates::peer(1, signed(&one, Says::default())).await;
    let mut b = certificates::peer(2, signed(&other, Says::default())).await;
    acquaint(&[&a, &b]);
    is_refused(&mut a, &b).await;
    a.until(|s| s.mismatched_members == 1).await;
    is_refused(&mut b, &a).await;
    b.until(|s| s.mismatched_members >= 1).await;
}

/// One without certificates is named by its key, one that closes the connection by its address.
#[tokio::test]
async fn a_silo_without_a_certificate_is_counted() {
    let authority = Authority::new();
    let a = certificates::peer(1, signed(&authority, Says::default())).await;
    let mut b = Peer::new(2).await;
    acquaint(&[&a, &b]);
    is_refused(&mut b, &a).await;
    for peer in [&a, &b] {
        peer.until(|s| s.mismatched_members == 1).await;
    }
}

#[tokio::test]
async fn silos_that_match_are_not_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (mut a, _) = with_secret(1, folder.path(), &[OLD, NEW]).await;
    let (mut b, _) = with_secret(2, folder.path(), &[NEW, OLD]).await;
    acquaint(&[&a, &b]);
    reaches(&mut a, &mut b).await;
    reaches(&mut b, &mut a).await;
    for peer in [&a, &b] {
        assert_eq!(peer.transport.stats().mismatched_members, 0);
    }
}

#[tokio::test]
async fn a_changed_secret_that_others_have_not_is_seen_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (mut a, secret) = with_secret(1, folder.path(), &[OLD]).await;
    let (mut b, _) = with_secret(2, folder.path(), &[OLD]).await;
    acquaint(&[&a, &b]);
    reaches(&mut a, &mut b).await;
    // Replaced, where it should have been appended first. Nothing is sent.
    std::fs::write(folder.path().join("1"), NEW).unwrap();
    secret.reload().unwrap();
    for peer in [&a, &b] {
        peer.until(|s| s.mismatched_members > 0).await;
    }
}

#[tokio::test]
async fn a_changed_certificate_that_others_refuse_is_seen_at_once() {
    let [one, other] = [Authority::new(), Authority::new()];
    let folder = tempfile::tempdir().unwrap();
    one.write(folder.path(), Says::default());
    let own = certificates::read(folder.path());
    let mut a = certificates::peer(1, own.clone()).await;
    let mut b = certificates::peer(2, signed(&one, Says::default())).await;
    acquaint(&[&a, &b]);
    reaches(&mut a, &mut b).await;
    other.write(folder.path(), Says::default());
    own.reload().unwrap();
    a.until(|s| s.mismatched_members > 0).await;
}

#[tokio::test]
async fn a_change_in_the_right_order_is_tried_out_and_harms_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let (a, secret) = with_secret(1, folder.path(), &[OLD]).await;
    let (b, other) = with_secret(2, folder.path(), &[OLD]).await;
    acquaint(&[&a, &b]);
    for keys in [&[OLD, NEW], &[NEW, OLD]] {
        for (number, secret, peer) in [(1, &secret, &b), (2, &other, &a)] {
            let accepted = peer.transport.stats().accepted;
            std::fs::write(folder.path().join(number.to_string()), keys.join("\n")).unwrap();
            secret.reload().unwrap();
            peer.until(|s| s.accepted > accepted).await;
        }
    }
    for peer in [a, b] {
        let closed = peer.until(|s| s.open == 0).await;
        assert_eq!(closed.mismatched_members, 0);
        let mut inbox = peer.inbox;
        assert!(
            inbox.recv().now_or_never().is_none(),
            "nobody was told of it"
        );
    }
}
