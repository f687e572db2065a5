//! Processes that say what is not so, by mistake or on purpose.

use membership_gossip::Config;

use crate::net::{Expect as _, Net, NodeId, endpoint, secs};

/// A process that advertises an address at which one contact point alone reaches it, as that of a
/// container on the same machine. If a single member says that it does not reach it, nobody knows which
/// of the two is wrong, and both are downed.
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
            if living.len() + 1 < all.len() {
                wrong.push(format!("{members} members, seed {seed}: {living:?} live"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
