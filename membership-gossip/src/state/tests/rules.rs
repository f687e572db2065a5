//! Single rules of states.

use membership_core::InstanceId;

use super::history::{address, profile};
use crate::state::{Causality, Flag, Gossip, MemberStatus, State};

fn admitted(nodes: &[(u8, u8)]) -> State {
    let mut state = State::default();
    state.edit(address(0, 1), |edit| {
        for (node, epoch) in nodes {
            edit.admit(address(*node, *epoch), InstanceId::new(1), profile());
        }
    });
    state
}

#[test]
fn a_removed_member_does_not_come_back_from_a_laggard() {
    let mut state = admitted(&[(0, 1), (1, 1)]);
    let mut laggard = state.clone();
    laggard.edit(address(1, 1), |edit| {
        edit.advance(&address(1, 1), MemberStatus::Leaving, None)
    });
    state.edit(address(0, 1), |edit| edit.remove(&address(1, 1)));
    state.merge(&laggard);
    assert_eq!(state.status(&address(1, 1)), Some(MemberStatus::Removed));
    laggard.merge(&state);
    assert_eq!(laggard, state);
}

#[test]
fn a_member_that_one_side_downed_is_kept_as_down() {
    // The known implementation drops a member that is down on one side and unknown to the other.
    let joining = admitted(&[(0, 1), (1, 1)]);
    let mut down = joining.clone();
    down.edit(address(2, 1), |edit| {
        edit.advance(&address(1, 1), MemberStatus::Down, None)
    });
    let empty = State::default();
    let mut left = joining.clone();
    left.merge(&{
        let mut both = down.clone();
        both.merge(&empty);
        both
    });
    assert_eq!(left.status(&address(1, 1)), Some(MemberStatus::Down));
}

#[test]
fn a_newer_incarnation_ends_the_older_one_for_ever() {
    let old = admitted(&[(0, 1), (1, 1)]);
    let mut new = admitted(&[(0, 1)]);
    new.edit(address(2, 1), |edit| {
        edit.admit(address(1, 5), InstanceId::new(2), profile())
    });
    new.merge(&old);
    assert_eq!(new.status(&address(1, 1)), Some(MemberStatus::Removed));
    assert_eq!(new.status(&address(1, 5)), Some(MemberStatus::Joining));
    assert_eq!(new.least_epoch(&address(1, 1).endpoint()), 6);
}

#[test]
fn a_quarantine_is_final_and_a_flag_is_not() {
    let mut state = admitted(&[(0, 1), (1, 1), (2, 1)]);
    let (me, one, two) = (address(0, 1), address(1, 1), address(2, 1));
    state.edit(me, |edit| {
        assert!(edit.flag(&one, Some(Flag::Unreachable)));
        assert!(edit.flag(&two, Some(Flag::Terminated)));
        assert!(!edit.flag(&me, Some(Flag::Unreachable)), "itself");
    });
    let before = state.clock().get(&me);
    state.edit(me, |edit| {
        assert!(edit.flag(&one, None));
        assert!(!edit.flag(&two, None));
    });
    assert_eq!(state.clock().get(&me), before + 1);
    let rows = state.reachability().of(&me).unwrap();
    assert_eq!((rows.version(), rows.rows().len()), (before + 1, 1));
}

#[test]
fn the_number_of_tombstones_is_bounded_and_what_they_stood_for_stays_gone() {
    let mut state = admitted(&(1..100).map(|n| (n, n)).collect::<Vec<_>>());
    let before = state.clone();
    state.edit(address(0, 1), |edit| {
        for n in 1..99 {
            edit.remove(&address(n, n));
        }
        edit.bound_tombstones(10);
    });
    assert_eq!(state.tombstones().len(), 5);
    state.merge(&before);
    assert_eq!(state.members().len(), 1);
    assert!((1..99).all(|n| state.is_gone(&address(n, n))));
    // A member that is older than the floor stays one.
    assert!(!state.is_gone(&address(99, 99)));
}

#[test]
fn clocks_are_compared_without_those_that_are_gone() {
    let mut state = admitted(&[(0, 1), (1, 1), (2, 1)]);
    state.edit(address(1, 1), |edit| {
        edit.advance(&address(2, 1), MemberStatus::Up, Some(1))
    });
    let old = state.clone();
    state.edit(address(2, 1), |edit| edit.remove(&address(1, 1)));
    assert_eq!(state.compare_clock(old.clock()), Causality::After);
    state.edit(address(2, 1), |edit| {
        edit.advance(&address(2, 1), MemberStatus::Leaving, None)
    });
    // Nothing that the removed member wrote is left, so its counter is forgotten.
    assert_eq!(state.clock().get(&address(1, 1)), 0);
    assert_eq!(state.compare_clock(old.clock()), Causality::After);
}

#[test]
fn a_change_empties_the_seen_set_and_the_same_state_fills_it() {
    let (a, b) = (address(0, 1), address(1, 1));
    let mut mine = Gossip::new(admitted(&[(0, 1), (1, 1)]));
    mine.mark_seen(&a);
    let mut theirs = mine.clone();
    theirs.mark_seen(&b);
    let merged = mine.merge(&theirs);
    assert!(!merged.changed && merged.news && !merged.they_lack);
    assert_eq!(mine.seen_by().collect::<Vec<_>>(), [&a, &b]);
    mine.edit(a, |edit| edit.advance(&a, MemberStatus::Up, Some(1)));
    assert_eq!(mine.seen_by().collect::<Vec<_>>(), [&a]);
    let merged = mine.merge(&theirs);
    assert!(!merged.changed && merged.they_lack);
    assert_eq!(mine.seen_by().collect::<Vec<_>>(), [&a]);
}
