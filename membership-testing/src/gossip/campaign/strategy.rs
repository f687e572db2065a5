//! The configuration of a run: presets and strategies by seed.

use membership_gossip::downing::{Downing, Strategy};
use membership_gossip::{Config, Preset};

/// The configuration of the members of a seed: mostly the default, each other strategy in one seed of
/// eight, and the specification's preset in one.
#[must_use]
pub fn config(seed: u64, members: usize) -> Config {
    let role = None;
    let quorum = u32::try_from(members / 2 + 1).unwrap_or(u32::MAX);
    let strategy = match seed % 8 {
        1 => Strategy::StaticQuorum { size: quorum, role },
        2 => Strategy::KeepOldest {
            down_if_alone: seed % 16 < 8,
            role,
        },
        3 | 7 => Strategy::lease_majority(),
        5 if seed % 16 < 8 => Strategy::DownAll,
        _ => Strategy::KeepMajority { role },
    };
    let mut config = Config::preset(if seed % 8 == 6 {
        Preset::Akka
    } else {
        Preset::Lan
    });
    config.downing = Downing::new(strategy);
    config
}
