//! What a refused peer learns: nothing, not even why. The silo's own counters say why.

use std::net::SocketAddr;

use membership::transport::{Secret, Security, TcpConfig, TransportStats};
use membership::{ClusterKey, ClusterKeys, MemoryTable};

use super::cluster::{Cluster, Member, read};
use super::stranger::{ALPN, Binding, Introduction, MARK, Stranger, talk_plainly};
use crate::common::{FaultyTable, cluster, table};

/// The sides of a connection in a proof.
const DIALLED: u8 = 0;
const ACCEPTED: u8 = 1;

fn keys(table: &MemoryTable) -> ClusterKeys {
    read(table).version_row.core.cluster_keys()
}

/// The reasons for which silos count refusals.
fn reasons(s: &TransportStats) -> [u64; 6] {
    [
        s.refused_handshake,
        s.refused_unproven,
        s.refused_secret,
        s.refused_cluster,
        s.refused_version,
        s.refused_certificate,
    ]
}
const HANDSHAKE: usize = 0;
const UNPROVEN: usize = 1;
const SECRET: usize = 2;
const CLUSTER: usize = 3;

/// Whether bytes have the name of the cluster or of its service.
fn tells(bytes: &[u8]) -> bool {
    let name = cluster();
    let has = |text: &str| {
        bytes
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    };
    has(name.service()) || has(name.cluster())
}

/// Waits for one more refusal, which has this reason and no other.
async fn refused(silo: &Member, before: &TransportStats, reason: usize) {
    let mut expected = reasons(before);
    expected[reason] += 1;
    let after = silo.until(|s| reasons(s) != reasons(before)).await;
    assert_eq!(reasons(&after), expected);
    assert_eq!(after.accepted, before.accepted);
}

type Says = Box<dyn FnOnce(Binding) -> Vec<u8> + Send>;

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_says_nothing_and_is_counted() {
    let ours = Cluster::start().await;
    let (silo, other) = (&ours.honest()[0], &ours.honest()[1]);
    let stranger = Stranger::new();
    let to = silo.me().endpoint();
    let by = |keys: ClusterKeys, name: &str, side| -> Says {
        let (me, name) = (Introduction::of(stranger.instance), name.to_owned());
        Box::new(move |binding| me.prove(&keys, &name, side, binding).to_bytes())
    };
    let (name, right) = (cluster().to_string(), keys(&ours.table));
    let wrong = ClusterKeys::from(ClusterKey::new([9; 32]));
    let says = |introduction: Introduction| -> Says { Box::new(move |_| introduction.to_bytes()) };

    // The proofs below are well made: a newcomer with such a one is answered.
    let before = silo.stats();
    let newcomer = by(right.clone(), &name, DIALLED);
    let answer = stranger.talk(to, ALPN, newcomer).await;
    assert!(answer.said.starts_with(MARK), "{answer:?}");
    silo.until(|s| s.accepted == before.accepted + 1).await;

    let plain = Introduction::of(stranger.instance);
    let (mut as_silo, mut as_instance) = (plain.clone(), plain.clone());
    (as_silo.silo, as_silo.at) = (Some(other.me()), other.me().endpoint());
    as_instance.instance = ours.as_read().get(&other.me()).unwrap().instance_id;
    let mut lengths = Vec::new();
    for says in [
        says(plain),
        says(as_silo),
        says(as_instance),
        by(wrong, &name, DIALLED),
        by(right.clone(), "another", DIALLED),
        by(right, &name, ACCEPTED),
    ] {
        let before = silo.stats();
        let answer = stranger.talk(to, ALPN, says).await;
        assert!(answer.said.is_empty(), "{answer:?}");
        assert!(!tells(&answer.wire));
        refused(silo, &before, UNPROVEN).await;
        lengths.push(answer.wire.len());
    }
    lengths.dedup();
    assert_eq!(lengths.len(), 1, "the length tells the reason: {lengths:?}");

    for (alpn, says) in [(ALPN, &b"GET / HTTP/1.1\r\n\r\n"[..]), (b"h2", &b""[..])] {
        let before = silo.stats();
        let answer = stranger.talk(to, alpn, move |_| says.to_vec()).await;
        assert!(answer.said.is_empty(), "{answer:?}");
        assert!(!tells(&answer.wire));
        refused(silo, &before, HANDSHAKE).await;
    }
    let before = silo.stats();
    let wire = talk_plainly(to, b"GET / HTTP/1.1\r\n\r\n".to_vec()).await;
    // No more than an alert of TLS.
    assert!(wire.len() <= 7 && !tells(&wire), "{wire:?}");
    refused(silo, &before, HANDSHAKE).await;
    for silo in ours.honest() {
        assert!(silo.health().ready && silo.view() == ours.as_read());
    }
    without_the_secret().await;
    of_another_cluster_in_plain_text().await;
}

async fn alone(security: Security) -> (MemoryTable, Member, SocketAddr) {
    let (table, mut config) = (table(), TcpConfig::default());
    config.security = security;
    let silo = Member::start(&FaultyTable::new(table.clone()), config).await;
    let to = silo.me().endpoint();
    (table, silo, to)
}

/// Whoever has read the table needs the secret besides.
async fn without_the_secret() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("secret");
    std::fs::write(&file, "0123456789abcdef0123456789abcdef\n").unwrap();
    let security = Security::table().with_secret(Secret::file(&file).unwrap());
    let (table, silo, to) = alone(security).await;
    let stranger = Stranger::new();
    for secret in [None, Some([7; 32])] {
        let (keys, instance) = (keys(&table), stranger.instance);
        let before = silo.stats();
        let answer = stranger.talk(to, ALPN, move |binding| {
            let mut me = Introduction::of(instance);
            me.secret = secret;
            let name = cluster().to_string();
            me.prove(&keys, &name, DIALLED, binding).to_bytes()
        });
        let answer = answer.await;
        assert!(answer.said.is_empty(), "{answer:?}");
        assert!(!tells(&answer.wire));
        refused(&silo, &before, SECRET).await;
    }
}

async fn of_another_cluster_in_plain_text() {
    let (_table, silo, to) = alone(Security::none()).await;
    let mut me = Introduction::of(Stranger::new().instance);
    for (fingerprint, is_ours) in [(cluster().fingerprint(), true), (1, false)] {
        let before = silo.stats();
        me.fingerprint = Some(fingerprint);
        let wire = talk_plainly(to, me.to_bytes()).await;
        if is_ours {
            assert!(wire.starts_with(MARK), "{wire:?}");
            silo.until(|s| s.accepted == before.accepted + 1).await;
        } else {
            assert!(wire.is_empty(), "{wire:?}");
            refused(&silo, &before, CLUSTER).await;
        }
    }
}
