//! A merge is a least upper bound, for all states of random histories.

use proptest::prelude::*;

use super::history::{World, steps};
use crate::state::{Gossip, MemberStatus, State};

fn merged(a: &State, b: &State) -> State {
    let mut all = a.clone();
    all.merge(b);
    all
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 250,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_merge_is_associative_commutative_and_idempotent(
        steps in steps(60),
        picks in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<prop::sample::Index>()), 8),
    ) {
        let past = World::run(&steps).past;
        for (a, b, c) in picks {
            let (a, b, c) = (a.get(&past), b.get(&past), c.get(&past));
            prop_assert_eq!(&merged(a, a), a);
            prop_assert_eq!(merged(a, b), merged(b, a));
            let all = merged(&merged(a, b), c);
            prop_assert_eq!(&all, &merged(a, &merged(b, c)));
            // An upper bound of all three, and its version is that of its content.
            for part in [a, b, c] {
                prop_assert_eq!(&merged(&all, part), &all);
            }
            prop_assert_eq!(merged(a, b).version() == merged(b, c).version(), merged(a, b) == merged(b, c));
        }
    }

    #[test]
    fn pairs_of_state_and_seen_set_are_a_semilattice_too(
        steps in steps(40),
        picks in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 3),
    ) {
        let past = World::run(&steps).past;
        let of = |(pick, bits): &(prop::sample::Index, u8)| Gossip::with_seen(pick.get(&past).clone(), vec![*bits]);
        let [a, b, c] = [of(&picks[0]), of(&picks[1]), of(&picks[2])];
        let join = |a: &Gossip, b: &Gossip| { let mut all = a.clone(); all.merge(b); all };
        prop_assert_eq!(join(&a, &a), a.clone());
        prop_assert_eq!(join(&a, &b), join(&b, &a));
        prop_assert_eq!(join(&join(&a, &b), &c), join(&a, &join(&b, &c)));
    }

    #[test]
    fn members_only_move_forward_and_nobody_comes_back(steps in steps(80)) {
        // The last state of each node is at least every state that it merged into it.
        let world = World::run(&steps);
        let all = world.past.iter().fold(State::default(), |all, s| merged(&all, s));
        for state in &world.past {
            for member in state.members().iter() {
                let now = all.status(&member.address()).unwrap_or(MemberStatus::Joining);
                prop_assert!(now >= member.status(), "{} {now} {}", member.address(), member.status());
            }
            for (address, _) in state.tombstones().iter() {
                prop_assert_eq!(all.status(&address), Some(MemberStatus::Removed));
                prop_assert!(!all.members().contains(&address));
            }
        }
        // What is named is known: no flags of or about those who are gone.
        for (observer, subject, _) in all.reachability().flags() {
            prop_assert!(!all.is_gone(&observer) && !all.is_gone(&subject));
        }
    }

    #[test]
    fn a_delta_brings_what_the_whole_state_brings(
        steps in steps(60),
        picks in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<prop::sample::Index>()), 8),
    ) {
        let past = World::run(&steps).past;
        for (from, to, later) in picks {
            let (from, to, later) = (from.get(&past), to.get(&past), later.get(&past));
            if let Some(delta) = from.delta_since(&to.base()) {
                let mut by_delta = to.clone();
                by_delta.apply(&delta);
                // Only what a floor stands for needs the whole state.
                if from.tombstones().floor() == 0 {
                    prop_assert_eq!(&by_delta, &merged(to, from));
                }
                // The receiver may have moved on meanwhile.
                let mut moved = merged(to, later);
                moved.apply(&delta);
                if from.tombstones().floor() == 0 && later.tombstones().floor() == 0 {
                    prop_assert_eq!(moved, merged(&merged(to, later), from));
                }
            }
        }
    }
}
