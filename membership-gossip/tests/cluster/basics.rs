//! Clusters form, lose members, and let them leave.

use membership_gossip::protocol::{Command, Termination};
use membership_gossip::{Config, Preset};

use crate::net::{Expect as _, Net, secs};

fn presets() -> [Config; 2] {
    [Preset::Lan, Preset::Akka].map(Config::preset)
}

#[test]
fn clusters_form() {
    for config in presets() {
        for n in [1, 2, 3, 5, 20] {
            let net = Net::cluster(7, n, &config);
            assert!(net.is_agreed());
            assert!(net.now.as_nanos() < 15_000_000_000, "{n} took {}", net.now);
        }
    }
}

#[test]
fn a_crash_is_noticed_and_resolved() {
    let mut net = Net::cluster(7, 5, &Config::default());
    net.kill(2);
    let took = net.run_until(secs(60), Net::is_agreed);
    // Five seconds of doubt, twenty of stability, and a few rounds.
    assert!((secs(20)..secs(35)).contains(&took), "{took:?}");
    assert_eq!(net.living().len(), 4);
}

#[test]
fn a_member_leaves() {
    for config in presets() {
        let mut net = Net::cluster(7, 5, &config);
        net.command(4, Command::Leave);
        net.run_until(secs(30), |net| net.living().len() == 4 && net.is_agreed());
        assert_eq!(net.nodes[4].ended, Some(Termination::Left));
    }
}
