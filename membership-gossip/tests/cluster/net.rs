//! The network of members for tests: what does not happen in time fails them.

use std::collections::BTreeSet;
use std::time::Duration;

use membership_gossip::Config;
use membership_gossip::protocol::Message;
pub(crate) use membership_testing::gossip::{Net, NodeId, endpoint};

pub(crate) const fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// Whether a message carries a state, or whoever has seen one.
pub(crate) const fn is_news(message: &Message) -> bool {
    let is_state = matches!(message, Message::State(_) | Message::Delta { .. });
    is_state || matches!(message, Message::Status { .. } | Message::Seen { .. })
}

/// How many clusters the living are members of.
pub(crate) fn foundings(net: &Net) -> usize {
    let living = net.living();
    let all = living
        .iter()
        .filter_map(|n| net.nodes[*n].protocol.founding());
    all.collect::<BTreeSet<_>>().len()
}

/// What tests add to a network.
pub(crate) trait Expect {
    /// A cluster of `n` whose contact points are the first three, all up.
    fn cluster(seed: u64, n: usize, config: &Config) -> Self;
    /// Runs until `done`; the time it took.
    fn run_until(&mut self, most: Duration, done: impl Fn(&Net) -> bool) -> Duration;
}

impl Expect for Net {
    #[track_caller]
    fn cluster(seed: u64, n: usize, config: &Config) -> Self {
        config.validate().unwrap();
        let mut net = Self::new(seed);
        for i in 0..n {
            net.start(i, config);
        }
        net.join_all(&(0..n).collect::<Vec<_>>());
        net.run_until(secs(120), Self::is_agreed);
        net
    }

    #[track_caller]
    fn run_until(&mut self, most: Duration, done: impl Fn(&Net) -> bool) -> Duration {
        match self.try_run_until(most, done) {
            Ok(took) => took,
            Err(why) => panic!("{why}"),
        }
    }
}
