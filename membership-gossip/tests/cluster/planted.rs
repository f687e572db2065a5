//! Each checker finds what it is for: a run of two members is told wrongly.

use membership_core::{FoundingId, InstanceId, MonoTime, SiloAddress, SiloInfo};
use membership_gossip::Config;
use membership_gossip::protocol::Message;
use membership_gossip::state::{Flag, Gossip, MemberStatus, Profile, State};

use crate::checks::Facts;
use crate::net::{Net, secs};

fn address(n: u8) -> SiloAddress {
    SiloAddress::new([10, 0, 0, n].into(), 7100, 1)
}

/// A network of one member whose view shows a state of the test's making.
fn view_of(me: u8, change: impl FnOnce(&mut State)) -> membership_gossip::GossipView {
    let mut state = State::default();
    state.edit(address(me), |edit| {
        for n in 1..4 {
            let profile = Profile::new(SiloInfo::default());
            edit.admit(address(n), InstanceId::new(n.into()), profile);
        }
    });
    change(&mut state);
    let mut gossip = Gossip::new(state);
    for n in 1..4 {
        gossip.mark_seen(&address(n));
    }
    membership_gossip::GossipView::of(Some(FoundingId::new(7)), gossip, address(me), "default")
}

fn advance(state: &mut State, by: u8, who: u8, to: MemberStatus, up: Option<u64>) {
    state.edit(address(by), |edit| edit.advance(&address(who), to, up));
}

fn found(facts: &Facts, rule: &str) {
    let found = facts.violations.iter().any(|v| v.starts_with(rule));
    assert!(found, "{rule}: {:?}", facts.violations);
}

const AT: MonoTime = MonoTime::ZERO;

#[test]
fn g2_a_member_that_goes_back_is_found() {
    let mut facts = Facts::default();
    let up = view_of(1, |s| advance(s, 1, 2, MemberStatus::Up, Some(1)));
    facts.state(AT, 0, &up);
    assert!(facts.violations.is_empty());
    facts.state(AT, 0, &view_of(1, |_| {}));
    found(&facts, "G2");
}

#[test]
fn g3_a_member_that_comes_back_is_found() {
    let mut facts = Facts::default();
    let gone = view_of(1, |s| {
        s.edit(address(1), |e| e.remove(&address(2)));
    });
    facts.state(AT, 0, &view_of(1, |_| {}));
    facts.state(AT, 0, &gone);
    assert!(facts.violations.is_empty());
    facts.state(AT, 0, &view_of(1, |_| {}));
    found(&facts, "G3");
}

#[test]
fn g4_agreement_without_those_who_had_to_see_is_found() {
    let mut facts = Facts::default();
    let change = |s: &mut State| advance(s, 1, 2, MemberStatus::Up, Some(1));
    let view = view_of(1, change);
    assert!(view.converged());
    facts.view(AT, 0, &view);
    found(&facts, "G4");
    // If the other one had it, all is well.
    let mut facts = Facts::default();
    facts.sent(
        address(2),
        &Message::State(std::sync::Arc::new(Gossip::new((**view.state()).clone()))),
    );
    facts.view(AT, 0, &view);
    assert!(facts.violations.is_empty());
}

#[test]
fn g5_one_clock_with_two_states_is_found() {
    let mut facts = Facts::default();
    facts.state(
        AT,
        0,
        &view_of(1, |s| advance(s, 1, 2, MemberStatus::Up, Some(1))),
    );
    facts.state(
        AT,
        1,
        &view_of(1, |s| advance(s, 1, 3, MemberStatus::Up, Some(1))),
    );
    found(&facts, "G5");
}

#[test]
fn g6_two_sets_of_flags_with_one_version_are_found() {
    let flag = |n: u8| {
        view_of(1, |s| {
            s.edit(address(1), |e| e.flag(&address(n), Some(Flag::Unreachable)));
        })
    };
    let mut facts = Facts::default();
    facts.state(AT, 0, &flag(2));
    facts.state(AT, 1, &flag(3));
    found(&facts, "G6");
}

#[test]
fn g8_two_leaders_of_one_state_are_found() {
    let change = |s: &mut State| advance(s, 1, 2, MemberStatus::Up, Some(1));
    let mut facts = Facts::default();
    let version = view_of(1, change).version();
    facts.lead(AT, 0, version, address(2));
    assert!(facts.violations.is_empty());
    facts.lead(AT, 1, version, address(3));
    found(&facts, "G8");
}

#[test]
fn g14_a_merge_of_two_foundings_is_found() {
    let mut facts = Facts::default();
    facts.state(AT, 0, &view_of(1, |_| {}));
    let mut other = view_of(1, |_| {});
    other = membership_gossip::GossipView::of(
        Some(FoundingId::new(8)),
        Gossip::new((**other.state()).clone()),
        address(2),
        "default",
    );
    facts.state(AT, 1, &other);
    found(&facts, "G14");
}

/// With auto-down both sides of a split live, and the networks' own check sees two clusters.
#[test]
fn g11_both_sides_of_a_split_live_under_auto_down() {
    let mut config = Config::default();
    let strategy = membership_gossip::downing::Strategy::AutoDownUnsafe { after: secs(5) };
    config.downing = membership_gossip::downing::Downing::new(strategy);
    let mut net = Net::cluster(3, 5, &config);
    net.split(&[0, 1, 2], &[3, 4]);
    net.run(secs(60));
    assert_eq!(net.living().len(), 5);
    assert_eq!(net.view(0).members().count(), 3);
    assert_eq!(net.view(4).members().count(), 2);
    assert!(net.view(0).converged() && net.view(4).converged());
}
