//! Processes that say what is not so, by mistake or on purpose.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use membership_core::protocol::{LinkId, PeerIdentity};
use membership_core::{ClusterName, FoundingId, InstanceId, MAX_SAFE_INTEGER, SiloAddress};
use membership_gossip::Config;
use membership_gossip::downing::Downing;
use membership_gossip::protocol::{Ballot, Header, Input, Message, Protocol, Refusal, Setup};
use membership_gossip::state::Profile;

use crate::broken_links::strategies;
use crate::net::{Expect as _, Net, NodeId, endpoint, foundings, secs};

/// A process hears a message of one that says to be at this address.
fn hears(net: &mut Net, node: NodeId, from: SiloAddress, body: Message) {
    hears_in(net, node, from, None, body);
}

/// The same from one that is in a cluster.
fn hears_in(
    net: &mut Net,
    node: NodeId,
    from: SiloAddress,
    founding: Option<FoundingId>,
    body: Message,
) {
    let cluster: ClusterName = "test".parse().unwrap();
    let instance = InstanceId::new(u128::MAX);
    let mut header = Header::new(cluster.fingerprint(), from, instance);
    header.founding = founding;
    let input = Input::Message {
        link: LinkId(u64::MAX),
        peer: PeerIdentity::Proven(instance),
        header,
        body: Arc::new(body),
        waited: Duration::ZERO,
    };
    net.input(node, input);
}

/// A process that advertises an address at which one contact point alone reaches it, as that of a
/// container on the same machine.
#[test]
fn who_is_reached_by_one_member_alone_does_not_end_the_others() {
    let mut wrong = Vec::new();
    for members in [3, 4, 5, 7, 10, 20] {
        for seed in 0..6 {
            let mut net = Net::cluster(seed, members, &Config::default());
            let bad = net.start(members, &Config::default());
            for other in 1..members {
                net.unroutable.insert((endpoint(other), endpoint(members)));
            }
            net.join_all(&[bad]);
            net.run(secs(300));
            let all: Vec<NodeId> = (0..members).collect();
            let living: Vec<_> = net.living().into_iter().filter(|n| *n != bad).collect();
            if living != all {
                wrong.push(format!("{members} members, seed {seed}: {living:?} live"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A process whose list of contact points is another one, with itself in it.
#[test]
fn who_has_other_contact_points_founds_no_second_cluster() {
    for seed in 0..40 {
        for at in [0, 3] {
            let mut net = Net::new(seed);
            let all: Vec<NodeId> = (0..4).map(|n| net.start(n, &Config::default())).collect();
            let others: Vec<_> = all.iter().copied().filter(|n| *n != at).collect();
            let points: Vec<_> = others.iter().map(|n| endpoint(*n)).collect();
            for node in &others {
                net.join(*node, points.clone());
            }
            net.join(at, vec![endpoint(at), points[0], points[1]]);
            // Each half has a majority of the contact points that are named there.
            net.split(&[at, others[0]], &others[1..]);
            net.run(secs(60));
            net.heal();
            net.run(secs(120));
            let case = format!("seed {seed}, {at} has another list\n{}", net.describe());
            assert_eq!((net.living(), foundings(&net)), (all, 1), "{case}");
            assert!(net.is_agreed(), "{case}");
        }
    }
}

/// Proposals of a founding with a number that no other one exceeds, of a contact point and of others.
#[test]
fn a_proposal_with_a_huge_number_keeps_nobody_from_founding() {
    for from in [2, 9] {
        let mut net = Net::new(3);
        let all: Vec<NodeId> = (0..3).map(|n| net.start(n, &Config::default())).collect();
        net.join_all(&all);
        net.run(secs(1));
        let proposer = SiloAddress::at(endpoint(from), MAX_SAFE_INTEGER);
        let round = u64::MAX;
        let ballot = Ballot { round, proposer };
        for node in all {
            hears(&mut net, node, proposer, Message::Propose { ballot });
            hears(&mut net, node, proposer, Message::Outbid { ballot });
        }
        net.run_until(secs(60), Net::is_agreed);
    }
}

/// A contact point, or who says so, names the largest epoch of all: nobody could follow it.
#[test]
fn a_refusal_with_a_huge_epoch_does_not_close_an_endpoint() {
    let mut net = Net::cluster(3, 3, &Config::default());
    let joiner = net.start(3, &Config::default());
    net.split(&[joiner], &[0, 1, 2]);
    net.join_all(&[joiner]);
    net.run(secs(1));
    let (by, least) = (net.me(0), MAX_SAFE_INTEGER);
    let refusal = Refusal::EpochTooLow { least };
    hears(&mut net, joiner, by, Message::Refused(refusal));
    net.heal();
    net.run_until(secs(60), Net::is_agreed);
    net.kill(joiner);
    let next = net.start(3, &Config::default());
    net.join_all(&[next]);
    net.run_until(secs(60), Net::is_agreed);
    assert_eq!(net.living(), [0, 1, 2, next]);
}

/// A member that flags everybody, because no answer to its heartbeats reaches it, and that never downs
/// itself. All others may lose it, and nobody else, wherever it is in the order of addresses.
#[test]
fn one_that_flags_everybody_ends_alone() {
    const DEAF: [fn(SocketAddr, &Message) -> bool; 3] =
        [is_answer_to::<0>, is_answer_to::<2>, is_answer_to::<4>];
    let mut wrong = Vec::new();
    for (liar, loses) in [0, 2, 4].into_iter().zip(DEAF) {
        for members in [5, 7, 12, 20] {
            for strategy in strategies(members) {
                for seed in 0..5 {
                    let mut config = Config::default();
                    config.downing = Downing::new(strategy.clone());
                    let mut net = Net::cluster(seed, members, &config);
                    net.grants = Some(Default::default());
                    decides_nothing(&mut net, liar);
                    net.loses = Some(loses);
                    net.run(secs(200));
                    let others: Vec<_> = (0..members).filter(|n| *n != liar).collect();
                    let living = net.living();
                    if living != others {
                        let case = format!("{}, {liar} of {members}", strategy.name());
                        wrong.push(format!("{case}, seed {seed}: {living:?} live"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Whether a message tells the process at an endpoint that another one answers.
fn is_answer_to<const NODE: NodeId>(to: SocketAddr, message: &Message) -> bool {
    let answers = matches!(
        message,
        Message::HeartbeatReply { .. } | Message::Relayed { .. }
    );
    answers && to == endpoint(NODE)
}

/// A member goes on without a resolver, whatever it told the others when it joined.
fn decides_nothing(net: &mut Net, node: NodeId) {
    let (me, seed) = (net.me(node), net.random());
    let before = &net.nodes[node].protocol;
    let gossip = Arc::new(before.gossip().clone());
    let member = gossip.state().member(&me).unwrap();
    let profile = Profile::new(member.info().clone());
    let mut setup = Setup::new(
        "test".parse().unwrap(),
        me.endpoint(),
        me.epoch(),
        member.instance(),
        profile,
        seed,
    );
    setup.config.downing = Downing::none();
    let founding = before.founding();
    net.nodes[node].protocol = Protocol::new(setup);
    let other = net.me((node + 1) % net.nodes.len());
    hears_in(net, node, other, founding, Message::Welcome(gossip));
}
