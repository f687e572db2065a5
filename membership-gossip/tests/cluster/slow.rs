//! Members whose messages are held up, once or again and again, and what they may do to others: the
//! anomalies of Lifeguard.

use std::time::Duration;

use membership_gossip::Config;
use membership_gossip::downing::{Downing, Strategy};
use membership_gossip::protocol::Notice;

use crate::net::{Expect as _, Net, NodeId, endpoint, secs};

/// Runs, and panics as soon as a member that is well does not count another one that is well.
#[track_caller]
fn run_well(net: &mut Net, well: &[NodeId], time: Duration, case: &str) {
    let end = net.now + time;
    let all: Vec<_> = well.iter().map(|n| net.me(*n)).collect();
    while net.now < end {
        net.run(Duration::from_millis(100));
        for node in well {
            assert!(
                net.nodes[*node].lives(),
                "{case}: {node} ended at {}",
                net.now
            );
            let view = net.view(*node);
            let active: Vec<_> = view.active().map(|m| m.address()).collect();
            let missing: Vec<_> = all.iter().filter(|m| !active.contains(m)).collect();
            assert!(
                missing.is_empty(),
                "{case}: {node} does not count {missing:?} at {}: {:?}",
                net.now,
                view.state().reachability().flags().collect::<Vec<_>>()
            );
        }
    }
}

#[test]
fn a_member_that_is_held_up_once_accuses_nobody() {
    for seed in 0..20 {
        for time in [7, 8, 12, 16, 40] {
            let mut net = Net::cluster(seed, 10, &Config::default());
            let well: Vec<_> = (0..10).filter(|n| *n != 4).collect();
            net.hold(4, secs(time));
            let case = format!("seed {seed}, {time} s");
            run_well(&mut net, &well, secs(time + 30), &case);
        }
    }
}

#[test]
fn members_that_are_held_up_again_and_again_end_nobody_else() {
    for (seed, on, off) in [
        (1, 8_192, 4),
        (2, 8_192, 1_024),
        (3, 8_192, 16_384),
        (4, 16_384, 4),
        (5, 32_768, 4),
        (6, 32_768, 1_024),
    ] {
        let mut net = Net::cluster(seed, 16, &Config::default());
        let slow = [1, 5, 9, 13];
        let well: Vec<_> = (0..16).filter(|n| !slow.contains(n)).collect();
        let (begun, case) = (net.now, format!("{on} ms on, {off} ms off"));
        while net.now.since(begun) < secs(120) {
            for node in slow {
                net.hold(node, Duration::from_millis(on));
            }
            run_well(&mut net, &well, Duration::from_millis(on + off), &case);
        }
        run_well(&mut net, &well, secs(60), &case);
    }
}

/// A member that hears nobody says so to those that it does not watch: that is no sign that anybody reaches
/// it.
#[test]
fn a_member_that_hears_nothing_is_missed_at_once() {
    for (monitored_by, members) in [(1, 4), (1, 5), (2, 8), (5, 12)] {
        for seed in 0..10 {
            let mut config = Config::default();
            config.downing = Downing::new(Strategy::None);
            config.monitored_by = monitored_by;
            let mut net = Net::cluster(seed, members, &config);
            let (deaf, all) = (members - 1, 0..members - 1);
            let cut = all.clone().map(|at| (endpoint(at), endpoint(deaf)));
            net.cut.extend(cut);
            let case = format!("seed {seed}, {members} members, {monitored_by} watch each");
            let missed = |net: &Net| {
                let state = net.view(0).state().clone();
                let mut flags = state.reachability().flags();
                flags.any(|(_, subject, _)| subject == net.me(deaf))
            };
            let took = net.try_run_until(secs(10), missed);
            assert!(took.is_ok(), "{case}");
            let is_told = |notice: &Notice| matches!(notice, Notice::LinkBroken { .. });
            for at in all {
                let told = net.nodes[at].notices.iter().any(|(_, n)| is_told(n));
                assert!(!told, "{case}: {at} was told that others reach it");
            }
        }
    }
}

/// Who decides that its own side ends tells it, and does not leave it to a few rumours of members that
/// end at once.
#[test]
fn a_side_that_ends_itself_ends_together() {
    for seed in 0..40 {
        let mut config = Config::default();
        config.downing = Downing::new(Strategy::KeepMajority { role: None });
        let mut net = Net::cluster(seed, 20, &config);
        let (left, right): (Vec<_>, Vec<_>) = (0..20).partition(|n| *n < 12);
        net.split(&left, &right);
        let living = |net: &Net| right.iter().filter(|n| net.nodes[**n].lives()).count();
        net.run_until(secs(60), |net| living(net) < right.len());
        net.run(secs(1));
        assert_eq!(living(&net), 0, "seed {seed}");
        net.run(secs(30));
        assert_eq!(net.living(), left, "seed {seed}");
    }
}
