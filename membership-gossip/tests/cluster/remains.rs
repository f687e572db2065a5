//! All who were in service end at once, and some that were just taken in are left.

use std::collections::BTreeMap;
use std::time::Duration;

use membership_core::MonoTime;
use membership_gossip::Config;
use membership_gossip::downing::{Downing, Strategy};
use membership_gossip::protocol::{Command, Termination};
use membership_gossip::state::MemberStatus;

use crate::net::{Expect as _, Net, NodeId, endpoint, foundings, secs};

const MEMBERS: usize = 7;

fn config(strategy: Strategy) -> Config {
    let mut config = Config::default();
    config.downing = Downing::new(strategy);
    config
}

fn knows(net: &Net, by: NodeId, of: NodeId) -> bool {
    net.status(by, of).is_some()
}

fn number(net: &Net, node: NodeId) -> Option<u64> {
    let me = net.me(node);
    net.view(node).member(&me).and_then(|m| m.up_number())
}

/// Two that live and are up, and were given the same number.
fn twins(net: &Net) -> Option<(NodeId, NodeId)> {
    let mut numbers = BTreeMap::new();
    let mut living = net.living().into_iter();
    living.find_map(|node| {
        let other = numbers.insert(number(net, node)?, node)?;
        Some((other, node))
    })
}

/// Processes join at two endpoints by different members, and neither knows of the other one.
fn two_joiners(net: &mut Net, config: &Config, at: [usize; 2]) -> Option<[NodeId; 2]> {
    let two = at.map(|at| net.start(at, config));
    net.join_all(&two);
    let end = net.now + secs(2);
    while net.now < end {
        net.run(Duration::from_micros(500));
        let joined = |node: NodeId| net.nodes[node].protocol.status().is_some();
        if two.into_iter().all(joined) {
            let [one, other] = two;
            let apart = !knows(net, one, other) && !knows(net, other, one);
            return apart.then_some(two);
        }
    }
    None
}

/// Processes are started where none runs, as their supervisors would.
fn start_again(net: &mut Net, config: &Config) {
    let taken: Vec<_> = net.living().into_iter().map(|n| net.me(n)).collect();
    let is_taken = |at: usize| taken.iter().any(|m| m.endpoint() == endpoint(at));
    let places: Vec<_> = (0..MEMBERS).filter(|at| !is_taken(*at)).collect();
    let again: Vec<_> = places.iter().map(|at| net.start(*at, config)).collect();
    net.join_all(&again);
}

/// An operator downs whom a member does not reach, where no resolver does.
fn down_the_silent(net: &mut Net) {
    for node in net.living() {
        let silent = net.view(node).blocked_by().unreachable.clone();
        for (member, _) in silent {
            net.command(node, Command::Down { member });
        }
    }
}

/// Nobody has the same number as another one, and all are one cluster at the end.
#[track_caller]
fn expect_one_cluster(net: &mut Net, operator: bool, case: &str) {
    for round in 0..400 {
        if round == 200 && operator {
            down_the_silent(net);
        }
        net.run(Duration::from_millis(250));
        let twins = twins(net);
        assert_eq!(twins, None, "{case}, {}\n{}", net.now, net.describe());
    }
    assert_eq!(foundings(net), 1, "{case}\n{}", net.describe());
    assert!(net.is_agreed(), "{case}\n{}", net.describe());
}

/// An operator downs all members that one of them knows, while two processes join by two others: new ones,
/// or one new and a contact point that is started again.
#[test]
fn all_are_downed_while_two_join() {
    let role = None;
    let strategies = [
        Strategy::None,
        Strategy::KeepMajority { role },
        Strategy::lease_majority(),
        Strategy::DownAll,
    ];
    let places = [MEMBERS + 1, 0, 1, 2].map(|at| [MEMBERS, at]);
    for strategy in &strategies {
        for places in places {
            let cases = (0..60).filter(|seed| downed_while_two_join(*seed, strategy, places));
            let cases = cases.count();
            assert!(cases > 5, "{strategy:?}, {places:?}: {cases}");
        }
    }
}

/// Whether this is such a case.
fn downed_while_two_join(seed: u64, strategy: &Strategy, places: [usize; 2]) -> bool {
    let config = config(strategy.clone());
    let mut net = Net::cluster(seed, MEMBERS, &config);
    net.grants = Some(Default::default());
    net.run(Duration::from_millis(seed * 10));
    let again = places.iter().filter(|at| **at < MEMBERS);
    again.for_each(|at| net.kill(*at));
    let Some(two) = two_joiners(&mut net, &config, places) else {
        return false;
    };
    let old: Vec<_> = (0..MEMBERS).filter(|n| net.nodes[*n].lives()).collect();
    let knows_none = |by: &&NodeId| two.iter().all(|of| !knows(&net, **by, *of));
    let Some(by) = old.iter().rev().find(knows_none).copied() else {
        return false;
    };
    // Itself last.
    for node in (0..MEMBERS).filter(|n| *n != by).chain([by]) {
        let member = net.me(node);
        net.command(by, Command::Down { member });
    }
    net.run(secs(1));
    old.iter().for_each(|node| net.kill(*node));
    start_again(&mut net, &config);
    let case = format!("{strategy:?}, {places:?}, seed {seed}");
    expect_one_cluster(&mut net, *strategy == Strategy::None, &case);
    true
}

/// When the resolver of a cluster ends all of its members, because one of them crashed.
fn downs_all_at(seed: u64, config: &Config) -> MonoTime {
    let mut net = Net::cluster(seed, MEMBERS, config);
    net.kill(MEMBERS - 1);
    while net.living().len() >= MEMBERS - 1 {
        net.run(Duration::from_millis(1));
    }
    net.now
}

/// The resolver downs all because one has crashed, while two processes join.
#[test]
fn the_resolver_downs_all_while_two_join() {
    let (mut cases, mut left) = (0, 0);
    let config = config(Strategy::DownAll);
    for seed in 0..100 {
        let at = downs_all_at(seed, &config);
        let mut net = Net::cluster(seed, MEMBERS, &config);
        net.kill(MEMBERS - 1);
        let before = Duration::from_millis(20 + seed * 2);
        net.run(at.since(net.now) - before);
        let places = [MEMBERS, MEMBERS + 1];
        let Some([one, two]) = two_joiners(&mut net, &config, places) else {
            continue;
        };
        cases += 1;
        let case = format!("seed {seed}");
        while net.living().iter().any(|n| *n < MEMBERS) && net.now < at + secs(5) {
            net.run(Duration::from_millis(1));
        }
        let are_left = net.nodes[one].lives() && net.nodes[two].lives();
        left += usize::from(are_left);
        net.run(secs(1));
        start_again(&mut net, &config);
        expect_one_cluster(&mut net, false, &case);
    }
    assert!(cases > 5 && left > 0, "{cases}, {left}");
}

/// A process that was just taken in is told that all others are down.
fn left_alone(net: &mut Net, config: &Config) -> Option<NodeId> {
    let one = net.start(MEMBERS, config);
    net.join_all(&[one]);
    while net.nodes[one].protocol.status().is_none() {
        net.run(Duration::from_micros(500));
    }
    let all: Vec<_> = (0..MEMBERS).collect();
    net.split(&[one], &all);
    for node in all {
        let member = net.me(node);
        net.command(one, Command::Down { member });
    }
    number(net, one).is_none().then_some(one)
}

/// One that is left alone goes on with nobody, and joins those who have founded another cluster meanwhile.
#[test]
fn who_is_left_alone_joins_a_cluster_that_was_founded_meanwhile() {
    let config = config(Strategy::KeepMajority { role: None });
    for seed in 0..20 {
        let mut net = Net::cluster(seed, MEMBERS, &config);
        let one = left_alone(&mut net, &config).unwrap();
        (0..MEMBERS).for_each(|node| net.kill(node));
        start_again(&mut net, &config);
        net.run(secs(60));
        assert_eq!(number(&net, one), None, "seed {seed}");
        assert_eq!(foundings(&net), 2, "seed {seed}");
        net.heal();
        net.run(secs(60));
        assert_eq!(foundings(&net), 1, "seed {seed}\n{}", net.describe());
        assert!(net.is_agreed(), "seed {seed}\n{}", net.describe());
    }
}

/// The others live, and have removed it.
#[test]
fn who_is_left_alone_joins_anew_where_it_was_removed() {
    let config = config(Strategy::KeepMajority { role: None });
    for seed in 0..20 {
        let mut net = Net::cluster(seed, MEMBERS, &config);
        let one = left_alone(&mut net, &config).unwrap();
        net.run(secs(60));
        assert_eq!(number(&net, one), None, "seed {seed}");
        net.heal();
        net.run(secs(60));
        assert_eq!(net.living().len(), MEMBERS + 1, "seed {seed}");
        assert!(net.is_agreed(), "seed {seed}\n{}", net.describe());
    }
}

/// A member that leaves hands over for long. All others of its cluster have ended meanwhile, and contact
/// points that are started again found another one: it is not to come back there.
#[test]
fn who_exits_joins_no_other_cluster() {
    let config = config(Strategy::KeepMajority { role: None });
    for seed in 0..20 {
        let mut net = Net::cluster(seed, 4, &config);
        net.hold_exit = true;
        (0..4).for_each(|node| net.command(node, Command::Leave));
        let exits = |net: &Net, node| net.status(3, node) == Some(MemberStatus::Exiting);
        net.run_until(secs(20), |net| (0..4).all(|node| exits(net, node)));
        (0..3).for_each(|node| net.kill(node));
        let again: Vec<_> = (0..3).map(|at| net.start(at, &config)).collect();
        net.join_all(&again);
        let me = net.me(3);
        net.run(secs(15));
        assert_eq!((net.me(3), exits(&net, 3)), (me, true), "seed {seed}");
        net.command(3, Command::ExitDone);
        net.run(secs(1));
        assert_eq!(net.nodes[3].ended, Some(Termination::Left), "seed {seed}");
        net.run_until(secs(60), Net::is_agreed);
    }
}

/// Who is weakly up works already. Its cluster is gone, or has removed it: it ends, and says so.
#[test]
fn who_is_weakly_up_does_not_start_over_in_silence() {
    let config = config(Strategy::None);
    for (seed, is_removed) in (0..20).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut net = Net::cluster(seed, 4, &config);
        net.kill(3);
        net.run(secs(10));
        let one = net.start(4, &config);
        net.join_all(&[one]);
        let works = |net: &Net| net.status(one, one) == Some(MemberStatus::WeaklyUp);
        net.run_until(secs(60), works);
        let (old, me) = ([0, 1, 2, 3], net.me(one));
        let members = old.map(|node| net.me(node));
        net.split(&[one], &old);
        if is_removed {
            net.run(secs(10));
            for member in [members[3], me] {
                net.command(0, Command::Down { member });
            }
        } else {
            (0..3).for_each(|node| net.kill(node));
        }
        net.run(secs(10));
        for member in members {
            net.command(one, Command::Down { member });
        }
        if !is_removed {
            let again: Vec<_> = (0..3).map(|at| net.start(at, &config)).collect();
            net.join_all(&again);
        }
        net.run(secs(30));
        let case = format!("seed {seed}, removed {is_removed}");
        assert!(works(&net), "{case}\n{}", net.describe());
        net.heal();
        net.run(secs(30));
        let end = (net.me(one), net.nodes[one].ended.clone());
        assert_eq!(end, (me, Some(Termination::Gone)), "{case}");
        assert!(net.is_agreed(), "{case}\n{}", net.describe());
    }
}

/// A process that was just taken in is cut off from all others, which end. It never becomes weakly up, and
/// so decides about nobody: in what it knows they are up for ever. It joins who takes their places.
#[test]
fn who_reaches_nobody_in_service_joins_those_who_founded_meanwhile() {
    for strategy in [Strategy::KeepMajority { role: None }, Strategy::None] {
        let mut config = config(strategy);
        config.weakly_up_after = None;
        for seed in 0..20 {
            let mut net = Net::cluster(seed, MEMBERS, &config);
            let one = net.start(MEMBERS, &config);
            net.join_all(&[one]);
            while net.nodes[one].protocol.status().is_none() {
                net.run(Duration::from_micros(500));
            }
            let all: Vec<_> = (0..MEMBERS).collect();
            net.split(&[one], &all);
            all.iter().for_each(|node| net.kill(*node));
            start_again(&mut net, &config);
            net.run(secs(60));
            let status = net.nodes[one].protocol.status();
            assert_eq!((status, foundings(&net)), (Some(MemberStatus::Joining), 2));
            net.heal();
            net.run(secs(60));
            assert_eq!(foundings(&net), 1, "seed {seed}\n{}", net.describe());
            assert!(net.is_agreed(), "seed {seed}\n{}", net.describe());
        }
    }
}

/// Of those that are left one crashes. No strategy counts any of them, so none may end them all: the others
/// go on without it once the contact points are members.
#[test]
fn one_of_those_that_are_left_crashes() {
    let strategies = [
        Strategy::KeepMajority { role: None },
        Strategy::KeepOldest {
            role: None,
            down_if_alone: true,
        },
        Strategy::DownAll,
        Strategy::lease_majority(),
    ];
    let mut cases = 0;
    for strategy in strategies {
        let config = config(strategy);
        for seed in 0..20 {
            let mut net = Net::cluster(seed, 5, &config);
            let three = [MEMBERS, MEMBERS + 1, MEMBERS + 2].map(|at| net.start(at, &config));
            net.join_all(&three);
            let is_joining = |net: &Net, by, of| net.status(by, of) == Some(MemberStatus::Joining);
            let all_join = |net: &Net| {
                let mut pairs = three.iter().flat_map(|by| three.map(|of| (*by, of)));
                pairs.all(|(by, of)| is_joining(net, by, of))
            };
            let end = net.now + secs(12);
            while net.now < end && !all_join(&net) {
                net.run(Duration::from_millis(1));
            }
            if !all_join(&net) {
                continue;
            }
            cases += 1;
            for node in 0..5 {
                let member = net.me(node);
                net.command(three[0], Command::Down { member });
            }
            net.run(Duration::from_millis(1));
            (0..5).for_each(|node| net.kill(node));
            net.run(secs(seed % 4));
            net.kill(three[2]);
            net.run(secs(1 + seed % 15));
            let again: Vec<_> = (0..3).map(|at| net.start(at, &config)).collect();
            net.join_all(&again);
            let case = format!("{:?}, seed {seed}", config.downing.strategy);
            expect_one_cluster(&mut net, false, &case);
            assert_eq!(net.living().len(), 5, "{case}\n{}", net.describe());
        }
    }
    assert!(cases > 40, "{cases}");
}
