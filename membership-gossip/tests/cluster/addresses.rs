//! Processes that advertise the address of another one, or one at which nobody answers.

use std::sync::Arc;
use std::time::Duration;

use membership_core::protocol::{LinkId, PeerIdentity, successors};
use membership_core::{ClusterName, InstanceId, SiloInfo};
use membership_gossip::protocol::{Command, Header, Input, Message, Notice, Refusal, Termination};
use membership_gossip::state::Profile;
use membership_gossip::{Config, Preset};

use crate::net::{Expect as _, Net, NodeId, endpoint, foundings, secs};

fn presets() -> [Config; 2] {
    [Preset::Lan, Preset::Akka].map(Config::preset)
}

/// How a process was refused for good, in words.
fn refused(net: &Net, node: NodeId) -> String {
    match &net.nodes[node].ended {
        Some(Termination::Refused(why)) => why.to_string(),
        other => format!("{other:?}"),
    }
}

/// How often a process was told that nobody answers at its address.
fn silences(net: &Net, node: NodeId) -> usize {
    let is_silence = |notice: &Notice| match notice {
        Notice::NotTakenIn { reason, .. } => reason.to_string().contains("nobody answers"),
        _ => false,
    };
    let notices = net.nodes[node].notices.iter();
    notices.filter(|(_, notice)| is_silence(notice)).count()
}

#[test]
fn who_advertises_the_address_of_a_member_is_refused_and_the_member_lives() {
    for config in presets() {
        for seed in 0..10 {
            // The address of a contact point, and of another member.
            for of in [1, 4] {
                let mut net = Net::cluster(seed, 5, &config);
                (net.loss, net.duplicates) = [(0.0, 0.0), (0.2, 0.2)][seed as usize % 2];
                let wrong = net.start_elsewhere(9, of, &config);
                net.join_all(&[wrong]);
                net.run(secs(60));
                net.heal();
                net.run_until(secs(60), Net::is_agreed);
                let case = format!("seed {seed}, the address of {of}");
                let why = refused(&net, wrong);
                assert!(why.contains("leads to another process"), "{case}: {why}");
                assert_eq!(net.living(), [0, 1, 2, 3, 4], "{case}");
            }
        }
    }
}

/// The member that is asked has that address itself: it asks there, and meets itself.
#[test]
fn who_asks_the_member_whose_address_it_advertises_is_refused_too() {
    let mut net = Net::cluster(3, 3, &Config::default());
    let wrong = net.start_elsewhere(9, 0, &Config::default());
    net.join(wrong, vec![endpoint(7)]);
    net.run(secs(1));
    let cluster: ClusterName = "test".parse().unwrap();
    let instance = InstanceId::new(9);
    let header = Header::new(cluster.fingerprint(), net.me(wrong), instance);
    let profile = Arc::new(Profile::new(SiloInfo::named("wrong")));
    let settings = Config::default().shared();
    net.input(
        0,
        Input::Message {
            link: LinkId(wrong as u64),
            peer: PeerIdentity::Proven(instance),
            header,
            body: Arc::new(Message::Join { profile, settings }),
            waited: Duration::ZERO,
        },
    );
    net.run(secs(1));
    let (by, process) = (net.me(0), net.me(0));
    let reason = Refusal::OtherProcess { process };
    let notices = &net.nodes[wrong].notices;
    let told: Vec<_> = notices.iter().map(|(_, notice)| notice.clone()).collect();
    assert_eq!(told, [Notice::NotTakenIn { by, reason }]);
    assert_eq!(net.view(0).members().count(), 3);
}

#[test]
fn a_contact_point_is_not_taken_for_oneself_when_another_process_is_there() {
    for config in presets() {
        let mut net = Net::new(3);
        let right = net.start(0, &config);
        net.join(right, vec![endpoint(0)]);
        net.run_until(secs(20), Net::is_agreed);
        let wrong = net.start_elsewhere(9, 0, &config);
        net.join(wrong, vec![endpoint(0)]);
        net.run(secs(20));
        let why = refused(&net, wrong);
        assert!(why.contains("leads to another process"), "{why}");
        assert_eq!((net.living(), foundings(&net)), (vec![right], 1));
        assert!(net.is_agreed());
    }
}

#[test]
fn who_cannot_reach_its_own_address_founds_nothing_and_says_so() {
    for config in presets() {
        let mut net = Net::new(3);
        let wrong = net.start_elsewhere(9, 0, &config);
        net.join(wrong, vec![endpoint(0)]);
        net.run(secs(60));
        assert_eq!(net.nodes[wrong].protocol.founding(), None);
        assert!((3..=30).contains(&silences(&net, wrong)));
        net.nodes[wrong].listens = endpoint(0);
        net.run_until(secs(20), Net::is_agreed);
    }
}

#[test]
fn a_process_at_whose_address_nobody_answers_is_never_taken_in() {
    for config in presets() {
        let mut net = Net::cluster(3, 4, &config);
        let wrong = net.start_elsewhere(9, 8, &config);
        net.join_all(&[wrong]);
        for _ in 0..60 {
            net.run(secs(1));
            assert!(net.view(0).converged());
            assert_eq!(net.view(0).members().count(), 4);
        }
        assert!((3..=30).contains(&silences(&net, wrong)));
        // Its address was put right.
        net.nodes[wrong].listens = endpoint(8);
        net.run_until(secs(30), Net::is_agreed);
    }
}

/// What it sends arrives, and nothing that members send reaches it.
#[test]
fn a_joiner_that_nothing_reaches_is_taken_in_when_its_link_is_whole() {
    for seed in 0..10 {
        let mut net = Net::cluster(seed, 4, &Config::default());
        let joiner = net.start(4, &Config::default());
        for at in 0..4 {
            net.cut.insert((endpoint(at), endpoint(4)));
        }
        net.join_all(&[joiner]);
        net.run(secs(30));
        assert_eq!(net.view(0).members().count(), 4);
        net.heal();
        net.run_until(secs(30), Net::is_agreed);
    }
}

/// A firewall may be on the way from one contact point only: others are asked before that one again.
#[test]
fn who_is_not_reached_by_one_contact_point_asks_the_others() {
    let mut net = Net::cluster(3, 3, &Config::default());
    let joiner = net.start(3, &Config::default());
    net.split(&[joiner], &[0, 1, 2]);
    net.join_all(&[joiner]);
    net.run(secs(1));
    let hears = |net: &mut Net, from: NodeId, body: Message| {
        let cluster: ClusterName = "test".parse().unwrap();
        let instance = net.view(0).member(&net.me(from)).unwrap().instance();
        let mut header = Header::new(cluster.fingerprint(), net.me(from), instance);
        header.to = Some(net.me(joiner));
        net.log = Some(Vec::new());
        net.input(
            joiner,
            Input::Message {
                link: LinkId(from as u64),
                peer: PeerIdentity::Proven(instance),
                header,
                body: Arc::new(body),
                waited: Duration::ZERO,
            },
        );
        let log = net.log.take().unwrap().into_iter();
        let joins = log.filter(|(_, _, _, body)| body.name() == "join");
        joins.map(|(_, _, to, _)| to).collect::<Vec<_>>()
    };
    let ack = || Message::InitJoinAck { established: true };
    let unanswered = || Message::Refused(Refusal::Unanswered);
    for asked in [0, 2] {
        assert_eq!(hears(&mut net, asked, ack()), [endpoint(asked)]);
        assert_eq!(hears(&mut net, asked, unanswered()), []);
        net.run(secs(1));
        assert_eq!(hears(&mut net, 0, ack()), []);
    }
    assert_eq!(hears(&mut net, 1, ack()), [endpoint(1)]);
    // Where no other one answers, it is asked again.
    assert_eq!(hears(&mut net, 1, unanswered()), []);
    net.run(secs(4));
    assert_eq!(hears(&mut net, 0, ack()), [endpoint(0)]);
}

/// A restart is proven before the older process is superseded, also while messages are lost and come
/// twice.
#[test]
fn a_restart_takes_over_its_address() {
    for config in presets() {
        for seed in 0..10 {
            let mut net = Net::cluster(seed, 5, &config);
            (net.loss, net.duplicates) = (0.2, 0.2);
            let old = net.me(4);
            net.kill(4);
            let new = net.start(4, &config);
            net.join_all(&[new]);
            net.run(secs(60));
            net.heal();
            if config.supersede_at_once {
                net.run_until(secs(60), Net::is_agreed);
            } else {
                let member = old;
                net.command(0, Command::Down { member });
                net.run_until(secs(90), Net::is_agreed);
            }
            assert!(net.view(0).member(&old).is_none(), "seed {seed}");
        }
    }
}

/// A join takes a question of each of four members, and no time that a person sees.
#[test]
fn the_proof_of_an_address_is_cheap() {
    let mut net = Net::cluster(3, 20, &Config::default());
    net.log = Some(Vec::new());
    let joiner = net.start(20, &Config::default());
    net.join_all(&[joiner]);
    let took = net.run_until(secs(5), |net| {
        net.nodes[joiner].protocol.founding().is_some()
    });
    assert!(took <= Duration::from_millis(250), "{took:?}");
    net.run(secs(10));
    let log = net.log.take().unwrap();
    let count = |name| {
        log.iter()
            .filter(|(_, _, _, body)| body.name() == name)
            .count()
    };
    assert_eq!((count("identify"), count("identity")), (4, 4));
    assert_eq!((count("vouch"), count("vouched")), (3, 3));
}

/// Why a process was not taken in, in words, without those that say that it may ask later.
fn reasons(net: &Net, node: NodeId) -> Vec<String> {
    let reason = |notice: &Notice| match notice {
        Notice::NotTakenIn { reason, .. } => Some(reason.to_string()),
        _ => None,
    };
    let notices = net.nodes[node].notices.iter();
    notices.filter_map(|(_, notice)| reason(notice)).collect()
}

/// A process that some members do not reach is taken in if most do, and told if most do not.
#[test]
fn who_is_reached_by_most_is_taken_in() {
    for seed in 0..10 {
        for (members, reaching, taken) in [
            (2, 1, false),
            (2, 2, true),
            (3, 1, false),
            (3, 2, true),
            (4, 2, false),
            (4, 3, true),
        ] {
            let mut net = Net::cluster(seed, members, &Config::default());
            let joiner = net.start(members, &Config::default());
            for at in reaching..members {
                net.unroutable.insert((endpoint(at), endpoint(members)));
            }
            net.join(joiner, vec![endpoint(0)]);
            net.run(secs(8));
            let case = format!("seed {seed}, {reaching} of {members}");
            let told = reasons(&net, joiner);
            assert_eq!(
                net.view(0).members().count() > members,
                taken,
                "{case}: {told:?}"
            );
            let not_reached = |told: &String| told.contains("members do not reach");
            assert_eq!(told.iter().any(not_reached), !taken, "{case}: {told:?}");
            net.heal();
            net.run_until(secs(60), Net::is_agreed);
            assert_eq!(net.living().len(), members + 1, "{case}");
        }
    }
}

/// A few broken links decide nothing, whoever is asked first.
#[test]
fn a_few_broken_links_keep_nobody_out() {
    for (count, members, broken) in [(1, 3, 1), (1, 5, 1), (1, 20, 1), (3, 20, 2), (3, 20, 4)] {
        for seed in 0..10 {
            let mut config = Config::default();
            config.relayed_heartbeats = count;
            let mut net = Net::cluster(seed, members, &config);
            let joiner = net.start(members, &config);
            // Those that are asked first.
            let others: Vec<_> = (1..members).map(|at| net.me(at)).collect();
            for member in successors(&net.me(joiner), &others, broken) {
                net.unroutable
                    .insert((member.endpoint(), endpoint(members)));
            }
            net.join(joiner, vec![endpoint(0)]);
            net.run(secs(12));
            let case = format!("seed {seed}, {count} of {members} asked, {broken} broken");
            assert!(net.nodes[joiner].protocol.status().is_some(), "{case}");
        }
    }
}

/// A stranger's question makes nobody dial.
#[test]
fn a_stranger_makes_no_member_dial_others() {
    let mut net = Net::cluster(1, 3, &Config::default());
    let stranger = net.start(7, &Config::default());
    let cluster: ClusterName = "test".parse().unwrap();
    let instance = InstanceId::new(7);
    for (from, dials) in [(net.me(stranger), 0), (net.me(1), 1)] {
        let mut header = Header::new(cluster.fingerprint(), from, instance);
        if let Some(member) = net.view(0).member(&from) {
            header.instance = member.instance();
        }
        header.founding = net.nodes[0].protocol.founding();
        net.log = Some(Vec::new());
        let (joiner, nonce) = (net.me(stranger), 1);
        net.input(
            0,
            Input::Message {
                link: LinkId(7),
                peer: PeerIdentity::Proven(header.instance),
                header,
                body: Arc::new(Message::Vouch { joiner, nonce }),
                waited: Duration::ZERO,
            },
        );
        let log = net.log.take().unwrap();
        let asked = log
            .iter()
            .filter(|(_, _, _, body)| body.name() == "identify");
        assert_eq!(asked.count(), dials);
    }
}

/// Members that have ended, and are not missed yet, say nothing about a process that joins.
#[test]
fn the_dead_keep_nobody_out() {
    for seed in 0..10 {
        let mut net = Net::cluster(seed, 7, &Config::default());
        (1..6).for_each(|node| net.kill(node));
        let joiner = net.start(7, &Config::default());
        net.join(joiner, vec![endpoint(0)]);
        let taken = |net: &Net| net.nodes[joiner].protocol.status().is_some();
        let took = net.run_until(secs(6), taken);
        assert!(took <= secs(5), "seed {seed}: {took:?}");
    }
}

/// A single member that says of everybody that it does not reach them keeps nobody out of a cluster of
/// four.
#[test]
fn one_voice_keeps_nobody_out() {
    for seed in 0..10 {
        for liar in 1..4 {
            let mut net = Net::cluster(seed, 4, &Config::default());
            net.unroutable.insert((endpoint(liar), endpoint(4)));
            let joiner = net.start(4, &Config::default());
            net.join(joiner, vec![endpoint(0)]);
            net.run(secs(8));
            assert!(net.nodes[joiner].protocol.status().is_some(), "seed {seed}");
        }
    }
}

/// Members of another data centre do not watch a process, and a firewall may keep them from it.
#[test]
fn another_data_centre_keeps_nobody_out() {
    for seed in 0..10 {
        let mut net = Net::new(seed);
        let start = |net: &mut Net, at: NodeId| {
            let data_centre = if at < 5 { "east" } else { "west" };
            let profile = Profile::in_data_centre(SiloInfo::named("m"), data_centre);
            net.start_as(at, &Config::default(), profile)
        };
        let nodes: Vec<_> = (0..6).map(|at| start(&mut net, at)).collect();
        net.join_all(&nodes);
        net.run_until(secs(60), Net::is_agreed);
        let joiner = start(&mut net, 6);
        for at in 0..5 {
            if at != 1 {
                net.unroutable.insert((endpoint(at), endpoint(6)));
            }
        }
        net.join(joiner, vec![endpoint(1)]);
        net.run(secs(6));
        assert!(net.nodes[joiner].protocol.status().is_some(), "seed {seed}");
    }
}

/// Each member in turn ends and is started again, after less and after more than others need to miss it.
#[test]
fn all_are_restarted_one_after_the_other() {
    for seed in 0..10 {
        for members in [2, 3, 5] {
            for (away, between) in [(200, 1_000), (500, 4_000), (3_000, 5_000), (3_000, 20_000)] {
                let mut net = Net::cluster(seed, members, &Config::default());
                for at in 0..members {
                    net.kill(at);
                    net.run(Duration::from_millis(away));
                    let again = net.start(at, &Config::default());
                    net.join_all(&[again]);
                    net.run(Duration::from_millis(between));
                }
                let case = format!("seed {seed}, {members} members, {away} ms, {between} ms");
                let agreed = net.try_run_until(secs(60), Net::is_agreed);
                assert!(agreed.is_ok(), "{case}\n{}", net.describe());
                assert_eq!(
                    (foundings(&net), net.living().len()),
                    (1, members),
                    "{case}"
                );
            }
        }
    }
}

/// Many at once, where messages are lost and a member that is asked stands still.
#[test]
fn many_join_at_once_beside_one_that_stands_still() {
    for seed in 0..6 {
        for members in [2, 3, 5] {
            let mut net = Net::cluster(seed, members, &Config::default());
            net.loss = [0.0, 0.1][seed as usize % 2];
            net.pause(members - 1, secs(8));
            let joiners: Vec<_> = (members..members + 30)
                .map(|at| net.start(at, &Config::default()))
                .collect();
            joiners
                .iter()
                .for_each(|joiner| net.join(*joiner, vec![endpoint(0)]));
            net.run(secs(40));
            net.heal();
            let case = format!("seed {seed}, {members} members");
            let agreed = net.try_run_until(secs(60), Net::is_agreed);
            assert!(agreed.is_ok(), "{case}\n{}", net.describe());
            assert_eq!(net.living().len(), members + 30, "{case}");
        }
    }
}

/// A process that is asked about ends, and another one is at its address before those asked have spoken.
#[test]
fn who_ends_while_it_is_asked_about_does_not_come_back() {
    for seed in 0..10 {
        let mut net = Net::cluster(seed, 5, &Config::default());
        // Two that are asked stand still: the answer takes its three seconds.
        (2..5).for_each(|node| net.pause(node, secs(6)));
        let first = net.start(5, &Config::default());
        net.join(first, vec![endpoint(0)]);
        net.run(Duration::from_millis(200 + 400 * seed));
        net.kill(first);
        let second = net.start(5, &Config::default());
        net.join(second, vec![endpoint(0)]);
        net.run_until(secs(60), Net::is_agreed);
        assert_eq!(net.living().len(), 6, "seed {seed}");
        assert!(net.view(0).member(&net.me(first)).is_none(), "seed {seed}");
    }
}
