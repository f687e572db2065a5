//! An arbiter that answers late, or whose answer nobody hears, and sides that are late to ask.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use membership_core::{MonoTime, SiloAddress};
use membership_gossip::Config;
use membership_gossip::downing::{Downing, Strategy};
use membership_gossip::protocol::{Command, Message};
use membership_gossip::state::MemberStatus;

use crate::net::{Expect as _, Net, NodeId, endpoint, is_news, secs};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn config() -> Config {
    let mut config = Config::default();
    config.downing = Downing::new(Strategy::lease_majority());
    config
}

fn cluster(seed: u64, members: usize) -> Net {
    let mut net = Net::cluster(seed, members, &config());
    net.grants = Some(Default::default());
    net
}

fn is_granted(net: &Net) -> bool {
    let grants = net.grants.as_ref().unwrap();
    grants.values().any(|g| !g.downed.is_empty())
}

/// A process starts at an endpoint and joins.
fn start(net: &mut Net, at: usize) -> NodeId {
    let node = net.start(at, &config());
    net.join_all(&[node]);
    node
}

/// The sets of members that go on, as those that live see them.
fn sides(net: &Net) -> BTreeSet<Vec<SiloAddress>> {
    let present = |node: &NodeId| {
        let members = net.nodes[*node].protocol.gossip().state().members().iter();
        let present = members.filter(|member| member.status() < MemberStatus::Down);
        present.map(|member| member.address()).collect()
    };
    let sides = net.living().iter().map(present).collect::<BTreeSet<_>>();
    // Who was not taken in is on no side.
    sides
        .into_iter()
        .filter(|side: &Vec<_>| !side.is_empty())
        .collect()
}

/// The leader of the larger side ends with the lease before anybody has heard of it, the split heals, and
/// the leader is back before anybody has missed it: nobody asks the arbiter. Later somebody crashes. Only
/// those end of whom the arbiter said so.
#[test]
fn a_lease_of_which_nobody_has_heard_ends_only_those_that_it_downed() {
    for (larger, smaller) in [([0, 1, 2], [3, 4]), ([2, 3, 4], [0, 1])] {
        for seed in 0..4 {
            let mut net = cluster(seed, 5);
            net.split(&larger, &smaller);
            while !is_granted(&net) {
                net.run(ms(1));
            }
            let [leader, crashes, goes_on] = larger;
            net.kill(leader);
            net.heal();
            let back = start(&mut net, leader);
            net.run(secs(30));
            let later = [5, 6, 7].map(|at| start(&mut net, at));
            net.run_until(secs(30), Net::is_agreed);
            assert_eq!(net.living().len(), 8, "seed {seed}");
            net.kill(crashes);
            net.run(secs(150));
            let mut well = vec![goes_on, back];
            well.extend(later);
            assert_eq!(net.living(), well, "seed {seed}\n{}", net.describe());
            assert!(net.is_agreed(), "seed {seed}");
        }
    }
}

/// Two or three sides ask, the answers are late, and meanwhile a leader freezes or the split changes.
#[test]
fn a_late_arbiter_leaves_one_side() {
    for seed in 0..120 {
        let members = 5 + usize::try_from(seed).unwrap() % 3;
        let mut net = cluster(seed, members);
        let mut some = |most| ms(net.below(most) as u64);
        let times = (some(2_400), some(2_400));
        net.arbiter = times;
        let parts = 2 + net.below(2);
        let part: Vec<_> = (0..members).map(|_| net.below(parts)).collect();
        let side = |at: usize| (0..members).filter(|n| part[*n] == at).collect::<Vec<_>>();
        for (a, b) in [(0, 1), (0, 2), (1, 2)] {
            net.split(&side(a), &side(b));
        }
        let meanwhile = net.below(3);
        if meanwhile > 0 {
            while !is_granted(&net) && net.now.since(MonoTime::ZERO) < secs(100) {
                net.run(ms(50));
            }
        }
        if meanwhile == 1 {
            let time = ms(1_000 + net.below(60_000) as u64);
            net.pause(side(part[0])[0], time);
        } else if meanwhile == 2 {
            let time = ms(net.below(5_000) as u64);
            net.run(time);
            net.heal();
            let cut = 1 + net.below(members - 1);
            let (left, right): (Vec<_>, Vec<_>) = (0..members).partition(|n| *n < cut);
            net.split(&left, &right);
        }
        net.run(secs(200));
        let sides = sides(&net);
        assert_eq!(sides.len(), 1, "seed {seed}, {part:?}: {sides:?}");
    }
}

/// One that is alone asks while the others have the lease and do not know it yet, and one of those is
/// reached again, but for the news, before the arbiter answers: only who asked ends.
#[test]
fn a_refused_side_downs_nobody_of_those_who_go_on() {
    for seed in 0..10 {
        let mut net = cluster(seed, 3);
        net.arbiter = (ms(0), ms(4_500));
        net.split(&[0, 1], &[2]);
        while !is_granted(&net) {
            net.run(ms(1));
        }
        net.arbiter = (ms(0), secs(2));
        // It asks 2.4 s after the others at the latest.
        net.run(ms(2_500));
        net.loses = Some(|_, message| is_news(message));
        let (one, alone) = (endpoint(0), endpoint(2));
        net.cut.remove(&(one, alone));
        net.cut.remove(&(alone, one));
        net.run(secs(10));
        net.loses = None;
        net.run(secs(60));
        assert_eq!(net.living(), [0, 1], "seed {seed}\n{}", net.describe());
    }
}

/// Heartbeats pass to a member of the larger side, and no news.
#[test]
fn a_member_that_takes_no_news_lets_its_side_ask_first() {
    fn loses(to: SocketAddr, message: &Message) -> bool {
        is_news(message) && to == endpoint(1)
    }
    for seed in 0..10 {
        let mut net = cluster(seed, 5);
        net.loses = Some(loses);
        net.split(&[0, 1, 2], &[3, 4]);
        net.run(secs(60));
        net.loses = None;
        net.run(secs(60));
        assert_eq!(net.living(), [0, 1, 2], "seed {seed}");
    }
}

/// A process joins the larger side and crashes, again and again.
#[test]
fn a_process_that_crashes_again_and_again_lets_its_side_ask_first() {
    for seed in 0..4 {
        for time in [300, 700, 5_000] {
            let mut net = cluster(seed, 5);
            net.split(&[0, 1, 2], &[3, 4]);
            for other in [3, 4].map(endpoint) {
                net.cut.extend([(endpoint(5), other), (other, endpoint(5))]);
            }
            let end = net.now + secs(60);
            while net.now < end {
                let joins = start(&mut net, 5);
                net.run(ms(time));
                net.kill(joins);
                net.run(ms(time));
            }
            assert_eq!(net.living(), [0, 1, 2], "seed {seed}, {time} ms");
        }
    }
}

/// All of the smaller side are restarted one after the other, and join each other: in what they know those
/// are gone whom the larger side has downed. One of them may leave at once: it was never up.
#[test]
fn a_side_of_which_all_were_restarted_gets_no_lease() {
    let mut joined = 0;
    for (seed, leaves) in (0..10).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut net = cluster(seed, 7);
        net.split(&[0, 1, 2, 3], &[4, 5, 6]);
        let mut last = 6;
        for at in [4, 5, 6] {
            // The one before it is taken in, although members on the other side say nothing about it.
            net.run(secs(5));
            net.kill(at);
            net.run(ms(500));
            last = start(&mut net, at);
        }
        net.run(secs(12));
        joined += usize::from(net.nodes[last].protocol.status().is_some());
        if leaves {
            net.command(last, Command::Leave);
        }
        net.run(secs(138));
        let case = format!("seed {seed}, leaves: {leaves}\n{}", net.describe());
        assert_eq!(sides(&net).len(), 1, "{case}");
        assert!(net.nodes[0].lives(), "{case}");
    }
    assert!(joined > 10, "{joined} of 20");
}
