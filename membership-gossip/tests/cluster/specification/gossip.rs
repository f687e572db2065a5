//! S4 to S6, S18 to S25: the state, agreement, gossip.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use membership_core::protocol::{LinkId, PeerIdentity};
use membership_core::{InstanceId, SiloAddress, SiloInfo};
use membership_gossip::protocol::{
    Command, Header, Input, Message, different_view_probability, encode,
};
use membership_gossip::state::{Gossip, MemberStatus, Profile, State};

use super::{akka, cluster};
use crate::net::{Expect as _, Net, NodeId, secs};

/// Hands a message of a member to another one, and returns what that one sends at once.
fn tell(net: &mut Net, to: NodeId, from: NodeId, body: Message, waited: Duration) -> Vec<Message> {
    let member = net.view(to).member(&net.me(from)).unwrap().instance();
    let cluster = membership_core::ClusterName::new("default", "test").unwrap();
    let mut header = Header::new(cluster.fingerprint(), net.me(from), member);
    header.founding = net.nodes[from].protocol.founding();
    header.to = Some(net.me(to));
    net.log = Some(Vec::new());
    net.input(
        to,
        Input::Message {
            link: LinkId(1),
            peer: PeerIdentity::Proven(member),
            header,
            body: Arc::new(body),
            waited,
        },
    );
    let log = net.log.take().unwrap();
    log.into_iter()
        .map(|(_, _, _, body)| (*body).clone())
        .collect()
}

fn names(messages: &[Message]) -> Vec<&'static str> {
    messages.iter().map(Message::name).collect()
}

fn status(gossip: &Gossip) -> Message {
    Message::Status {
        version: gossip.version(),
        seen: gossip.seen().digest(),
        answer: false,
        clock: Some(Arc::new(gossip.state().clock().clone())),
    }
}

fn down(gossip: &Gossip, by: SiloAddress, who: SiloAddress) -> Gossip {
    let mut gossip = gossip.clone();
    assert!(gossip.edit(by, |edit| edit.advance(&who, MemberStatus::Down, None)));
    gossip
}

#[test]
fn s04_concurrent_changes_merge_to_one_result() {
    let mut net = cluster(5);
    net.kill(3);
    net.kill(4);
    for (by, of) in [(0, 3), (1, 4), (2, 3)] {
        let member = net.me(of);
        net.command(by, Command::Down { member });
    }
    net.run_until(secs(40), Net::is_agreed);
    let versions: BTreeSet<_> = net
        .living()
        .iter()
        .map(|n| net.view(*n).version())
        .collect();
    assert_eq!(versions.len(), 1);
}

#[test]
fn s05_each_change_raises_the_counter_of_who_makes_it() {
    let mut net = cluster(3);
    let (me, member) = (net.me(1), net.me(2));
    let before = net.view(1).state().clock().get(&me);
    net.kill(2);
    net.command(1, Command::Down { member });
    net.run(Duration::from_millis(1));
    assert_eq!(net.view(1).state().clock().get(&me), before + 1);
}

#[test]
fn s06_who_has_seen_a_state_is_carried_with_it() {
    let mut net = cluster(4);
    let seen = |net: &Net| net.nodes[1].protocol.gossip().seen().len();
    assert!(net.view(1).converged() && seen(&net) == 4);
    net.kill(3);
    let member = net.me(3);
    net.command(1, Command::Down { member });
    net.run(Duration::from_micros(10));
    assert_eq!(seen(&net), 1);
    assert_eq!(net.view(1).blocked_by().unseen.len(), 2);
    net.run_until(secs(30), |net| {
        net.view(1).converged() && net.view(1).members().count() == 3
    });
}

#[test]
fn s18_versions_are_told_first_and_states_only_where_they_differ() {
    let mut net = cluster(5);
    net.run(secs(5));
    net.log = Some(Vec::new());
    net.run(secs(10));
    let log = net.log.take().unwrap();
    let all: BTreeSet<_> = log.iter().map(|(_, _, _, body)| body.name()).collect();
    assert_eq!(
        all,
        BTreeSet::from(["heartbeat", "heartbeat-reply", "status"])
    );
}

#[test]
fn s19_one_peer_per_second_and_three_while_few_have_seen_the_state() {
    let mut net = cluster(20);
    let others: Vec<_> = (1..20).collect();
    net.split(&[0], &others);
    let rounds = |net: &Net| {
        let sent = &net.nodes[0].sent;
        sent.get("status").unwrap_or(&0) + sent.get("state").unwrap_or(&0)
    };
    let before = rounds(&net);
    net.run(secs(2));
    let calm = rounds(&net) - before;
    assert_eq!(calm, 2);
    let member = net.me(19);
    net.command(0, Command::Leave);
    net.command(0, Command::Down { member });
    net.run(Duration::from_millis(1));
    let before = rounds(&net);
    net.run(secs(2));
    let fast = rounds(&net) - before;
    assert!((5..=7).contains(&fast), "{fast}");
}

#[test]
fn s20_the_peer_is_one_that_has_not_seen_the_state_with_a_probability_of_four_fifths() {
    let config = akka();
    let p = different_view_probability(
        config.gossip_different_view_probability,
        config.reduce_gossip_different_view_probability,
        100,
    );
    assert!((p - 0.8).abs() < 1e-9);
    // One member is behind: most rounds of the one that knows go there.
    let mut net = cluster(20);
    let others: Vec<_> = (1..20).collect();
    net.split(&[0], &others);
    let gossip = net.nodes[0].protocol.gossip().clone();
    let mut one = down(&gossip, net.me(1), net.me(19));
    for n in 1..18 {
        one.mark_seen(&net.me(n));
    }
    tell(
        &mut net,
        0,
        1,
        Message::State(Arc::new(one)),
        Duration::ZERO,
    );
    net.log = Some(Vec::new());
    net.run(secs(3));
    let log = net.log.take().unwrap();
    let behind = [net.me(18).endpoint(), net.me(19).endpoint()];
    let of_gossip = |body: &Message| matches!(body.name(), "state" | "status");
    let rounds: Vec<_> = log
        .iter()
        .filter(|(_, from, _, body)| *from == net.me(0) && of_gossip(body))
        .map(|(_, _, to, _)| behind.contains(to))
        .collect();
    let hits = rounds.iter().filter(|hit| **hit).count();
    assert!(rounds.len() >= 3 && hits * 2 > rounds.len(), "{rounds:?}");
}

#[test]
fn s21_above_400_members_the_probability_falls_and_old_gossip_is_dropped() {
    for (members, due) in [(400, 0.8), (800, 0.44), (1_200, 0.08), (9_000, 0.08)] {
        let p = different_view_probability(0.8, 400, members);
        assert!((p - due).abs() < 1e-9, "{members}: {p}");
    }
    let mut net = cluster(3);
    let gossip = net.nodes[0].protocol.gossip().clone();
    let newer = Arc::new(down(&gossip, net.me(1), net.me(2)));
    tell(&mut net, 0, 1, Message::State(Arc::clone(&newer)), secs(3));
    assert_eq!(net.view(0).version(), gossip.version());
    tell(&mut net, 0, 1, Message::State(newer), secs(1));
    assert_ne!(net.view(0).version(), gossip.version());
}

#[test]
fn s22_members_that_agree_send_only_a_small_status() {
    let mut net = cluster(20);
    net.run(secs(5));
    net.log = Some(Vec::new());
    net.run(secs(5));
    let log = net.log.take().unwrap();
    let header = Header::new(0, net.me(0), InstanceId::new(1));
    let statuses = log.iter().filter(|(_, _, _, body)| body.name() == "status");
    let sizes: Vec<_> = statuses
        .map(|(_, _, _, body)| encode(&header, body).unwrap().len())
        .collect();
    assert_eq!(sizes.len(), 100, "one per member and second, and no answer");
    let state = Message::State(Arc::new(net.nodes[0].protocol.gossip().clone()));
    let whole = encode(&header, &state).unwrap().len();
    assert!(
        sizes.iter().all(|size| size * 3 < whole),
        "{sizes:?} {whole}"
    );
}

#[test]
fn s23_newer_sends_older_asks_conflict_merges_and_equal_is_silent() {
    let mut net = cluster(3);
    net.run(secs(5));
    let (one, two) = (net.me(1), net.me(2));
    let gossip = net.nodes[0].protocol.gossip().clone();
    let zero = Duration::ZERO;
    assert!(tell(&mut net, 0, 1, status(&gossip), zero).is_empty());
    let older = Gossip::new(State::default());
    assert_eq!(
        names(&tell(&mut net, 0, 1, status(&older), zero)),
        ["state"]
    );
    let newer = down(&gossip, one, two);
    assert_eq!(
        names(&tell(&mut net, 0, 1, status(&newer), zero)),
        ["status"]
    );
    // Both changed the state.
    let member = two;
    net.input(0, Input::Command(Command::Down { member }));
    let answer = tell(
        &mut net,
        0,
        1,
        Message::State(Arc::new(newer.clone())),
        zero,
    );
    let Some(Message::State(merged)) = answer.first() else {
        panic!("{answer:?}");
    };
    assert!(merged.state().clock().get(&one) == newer.state().clock().get(&one));
    assert!(merged.state().clock().get(&net.me(0)) > gossip.state().clock().get(&net.me(0)));
}

#[test]
fn s24_several_joins_become_one_change() {
    let mut net = cluster(3);
    for at in 3..9 {
        net.start(at, &akka());
    }
    net.join_all(&(3..9).collect::<Vec<_>>());
    net.run_until(secs(30), Net::is_agreed);
    let view = net.view(0);
    let joined = view
        .members()
        .filter(|m| m.address().endpoint() >= net.me(3).endpoint());
    let changes: BTreeSet<_> = joined.map(|m| m.stamp()).collect();
    assert!(changes.len() <= 2, "{changes:?}");
}

#[test]
fn s25_whole_states_are_compressed() {
    let address = |n: u32| {
        let [_, a, b, c] = n.to_be_bytes();
        SiloAddress::new([10, a, b, c].into(), 7100, 1_763_000_000_000)
    };
    let mut state = State::default();
    state.edit(address(0), |edit| {
        for n in 0..1_000_u32 {
            let mut info = SiloInfo::named(format!("orders-{n}"));
            info.host_name = format!("node-{n}.example.net");
            info.role = "orders".to_owned();
            let id = u128::from(n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
            edit.admit(address(n), InstanceId::new(id), Profile::new(info));
        }
    });
    let message = Message::State(Arc::new(Gossip::new(state)));
    let header = Header::new(0, address(0), InstanceId::new(1));
    let bytes = encode(&header, &message).unwrap().len();
    // Id, address, names and role alone are some 70 bytes of each.
    assert!(bytes < 50 * 1_000, "{bytes}");
}
