//! For all clean splits: no strategy lets both sides go on under its assumptions, and all members of
//! a side decide the same.

use membership_gossip::downing::{Downing, Situation, Strategy, Verdict, decide};
use proptest::prelude::*;

use super::situation;

/// A clean split of a cluster: who is on which side, and the status of each.
fn split() -> impl Strategy2 {
    prop::collection::vec((any::<bool>(), 0..3_usize), 2..12)
}

trait Strategy2: proptest::strategy::Strategy<Value = Vec<(bool, usize)>> {}
impl<T: proptest::strategy::Strategy<Value = Vec<(bool, usize)>>> Strategy2 for T {}

/// The same split as both sides see it.
fn both_sides(members: &[(bool, usize)], statuses: &[&str]) -> (Situation, Situation) {
    let names = |left: bool| -> String {
        let all = members.iter().enumerate().filter(|(_, (l, _))| *l == left);
        all.map(|(i, (_, status))| {
            let letter = char::from(b'a' + u8::try_from(i).unwrap());
            format!("{letter}{} ", statuses[status % statuses.len()])
        })
        .collect()
    };
    let (left, right) = (names(true), names(false));
    (
        situation(&format!("{left}|{right}")),
        situation(&format!("{right}|{left}")),
    )
}

/// Whether a side has members left after its own decision.
fn lives(strategy: &Strategy, side: &Situation) -> bool {
    let decision = decide(&Downing::new(strategy.clone()), side);
    let mut reached = side.members.iter().filter(|m| {
        !side.unreachable.contains(&m.address()) && m.status().counts_for_convergence()
    });
    reached.any(|m| !decision.down.contains(&m.address()))
}

fn exclusive() -> Vec<Strategy> {
    let role = || None;
    vec![
        Strategy::KeepMajority { role: role() },
        Strategy::KeepOldest {
            down_if_alone: true,
            role: role(),
        },
        Strategy::KeepOldest {
            down_if_alone: false,
            role: role(),
        },
        Strategy::DownAll,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_sides_know_the_same_and_at_most_one_lives(members in split()) {
        let (left, right) = both_sides(&members, &["", "l", "j"]);
        for strategy in exclusive() {
            prop_assert!(!(lives(&strategy, &left) && lives(&strategy, &right)), "{strategy:?} {members:?}");
        }
        let size = u32::try_from(members.len() / 2 + 1).unwrap();
        let quorum = Strategy::StaticQuorum { size, role: None };
        prop_assert!(!(lives(&quorum, &left) && lives(&quorum, &right)));
    }

    /// One change is pending: a joiner that one side already knows as up.
    #[test]
    fn one_pending_change_does_not_let_both_sides_live(members in split()) {
        let keep = Strategy::KeepMajority { role: None };
        let with: Vec<_> = members.iter().enumerate().map(|(i, (side, _))| (*side, usize::from(i == 0))).collect();
        let before = both_sides(&with, &["", "j"]);
        let after = both_sides(&with, &["", ""]);
        // The joiner's own side knows first.
        let (knows, other) = if with[0].0 { (after.0, before.1) } else { (after.1, before.0) };
        prop_assert!(!(lives(&keep, &knows) && lives(&keep, &other)), "{with:?}");
    }

    #[test]
    fn with_a_lease_one_side_lives_whatever_the_sides_are(members in split(), left_gets_it in any::<bool>()) {
        let (left, right) = both_sides(&members, &["", "l", "j"]);
        let lease = Strategy::LeaseMajority {
            role: None,
            delay_for_minority: std::time::Duration::from_secs(2),
            release_after: std::time::Duration::from_secs(40),
        };
        let (left, right) = (left.with_lease(left_gets_it), right.with_lease(!left_gets_it));
        prop_assert!(!(lives(&lease, &left) && lives(&lease, &right)));
    }

    /// Auto-down is what its name says: the checker above would see it.
    #[test]
    fn auto_down_lets_both_sides_live(members in split()) {
        let both = members.iter().any(|(l, _)| *l) && members.iter().any(|(l, _)| !*l);
        prop_assume!(both);
        let (left, right) = both_sides(&members, &[""]);
        let unsafe_one = Strategy::AutoDownUnsafe { after: std::time::Duration::from_secs(10) };
        prop_assert!(lives(&unsafe_one, &left) && lives(&unsafe_one, &right));
        prop_assert_eq!(decide(&Downing::new(unsafe_one), &left).verdict, Verdict::DownUnreachable);
    }
}
