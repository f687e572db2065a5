//! Each checker finds what it is for: a run of two members is told wrongly.

use std::sync::Arc;

use membership_core::{FoundingId, InstanceId, MonoTime, SiloAddress, SiloInfo};
use membership_gossip::Config;
use membership_gossip::downing::{Decision, Verdict};
use membership_gossip::protocol::{Header, Message};
use membership_gossip::state::{Flag, Gossip, MemberStatus, Profile, State};
use membership_testing::gossip::Facts;

use crate::net::{Expect as _, Net, secs};

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

fn after(seconds: u64) -> MonoTime {
    AT + secs(seconds)
}

fn header(from: u8, to: u8) -> Header {
    let mut header = Header::new(1, address(from), InstanceId::new(from.into()));
    header.to = Some(address(to));
    header
}

/// States of members that do not know the same.
fn states() -> [State; 3] {
    let mut all = [(); 3].map(|()| (**view_of(1, |_| {}).state()).clone());
    advance(&mut all[1], 2, 3, MemberStatus::Up, Some(1));
    all[2].edit(address(3), |e| e.flag(&address(2), Some(Flag::Unreachable)));
    all
}

#[test]
fn g1_a_merge_that_depends_on_the_order_is_found() {
    let mut facts = Facts::default();
    facts.merges(AT, &states());
    assert!(facts.violations.is_empty());
    assert_eq!(facts.counts["merges of different states"], 1);
    facts.merges_by(AT, &states(), |_, last| last.clone());
    found(&facts, "G1");
}

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
    let state = Gossip::new((**view.state()).clone());
    facts.sent(AT, &header(2, 1), &Message::State(Arc::new(state)));
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
fn g7_a_flag_of_one_that_is_gone_is_found() {
    // No state of this build keeps such a flag, so the state says of one that it is gone, and its flag
    // is from a state that does not.
    let gone = view_of(1, |s| {
        s.edit(address(2), |e| e.flag(&address(3), Some(Flag::Unreachable)));
        s.edit(address(1), |e| e.remove(&address(2)));
    });
    assert!(gone.state().reachability().of(&address(2)).is_none());
    let mut facts = Facts::default();
    facts.flags_of(AT, 0, gone.state(), gone.state().reachability());
    assert!(facts.violations.is_empty());
    let before = view_of(1, |s| {
        s.edit(address(2), |e| e.flag(&address(3), Some(Flag::Unreachable)));
    });
    facts.flags_of(AT, 0, gone.state(), before.state().reachability());
    found(&facts, "G7");
}

#[test]
fn g8_one_number_of_two_members_is_found() {
    let mut facts = Facts::default();
    let two = view_of(1, |s| {
        advance(s, 1, 2, MemberStatus::Up, Some(1));
        advance(s, 1, 3, MemberStatus::Up, Some(1));
    });
    facts.state(AT, 0, &two);
    found(&facts, "G8");
}

#[test]
fn g9_a_flag_without_silence_is_found() {
    let config = Config::default();
    let flagged = view_of(1, |s| {
        s.edit(address(1), |e| e.flag(&address(2), Some(Flag::Unreachable)));
    });
    let heard = |at: u64| {
        let mut facts = Facts::new(&config);
        let reply = Message::HeartbeatReply { nonce: 1 };
        facts.delivered(after(at), &header(2, 1), &reply);
        facts
    };
    let mut facts = heard(10);
    facts.state(after(13), 0, &flagged);
    assert!(facts.violations.is_empty(), "{:?}", facts.violations);
    let mut facts = heard(10);
    facts.state(after(12), 0, &flagged);
    found(&facts, "G9");
    // Silence that the observer did not listen to.
    let mut facts = heard(10);
    facts.resumed(after(19), 0, secs(8));
    facts.state(after(20), 0, &flagged);
    found(&facts, "G9");
    // All is well.
    let mut facts = heard(10);
    facts.calm(Some(after(11)));
    facts.state(after(20), 0, &flagged);
    found(&facts, "G9");
}

fn decision(verdict: Verdict, down: u8) -> Decision {
    Decision {
        verdict,
        down: [address(down)].into(),
        reached: 2,
        unreached: 1,
        indirect: [].into(),
    }
}

#[test]
fn g10_two_decisions_from_the_same_facts_are_found() {
    let one = decision(Verdict::DownUnreachable, 3);
    let mut facts = Facts::default();
    facts.decided(AT, (0, address(1)), &one, &[one.clone(), one.clone()]);
    assert!(facts.violations.is_empty());
    let two = decision(Verdict::DownReachable, 1);
    facts.decided(AT, (0, address(1)), &one, &[one.clone(), two]);
    found(&facts, "G10");
}

#[test]
fn g11_two_sides_that_live_are_found() {
    let mut facts = Facts::default();
    facts.split_is_over(AT, [&[1, 2], &[]]);
    facts.split_is_over(AT, [&[], &[]]);
    assert!(facts.violations.is_empty());
    facts.split_is_over(AT, [&[1, 2], &[3]]);
    found(&facts, "G11");
    let mut facts = Facts::default();
    facts.both_live(AT, 1, 2);
    found(&facts, "G11");
}

#[test]
fn g12_one_that_lives_longer_than_its_heir_waits_is_found() {
    let mut facts = Facts::default();
    facts.decided(
        AT,
        (0, address(1)),
        &decision(Verdict::DownUnreachable, 3),
        &[],
    );
    facts.heirs(after(20), secs(20), &[(2, address(3)), (1, address(2))]);
    assert!(facts.violations.is_empty());
    facts.heirs(after(21), secs(20), &[(2, address(3))]);
    found(&facts, "G12");
}

#[test]
fn g15_one_that_is_gone_and_goes_on_is_found() {
    let mut facts = Facts::default();
    for second in 0..40 {
        // It does not meet anybody who knows it in the middle.
        let met = (second != 20).then_some((3, 1)).into_iter().collect();
        facts.gone_but_alive(after(second), &met, secs(30));
    }
    assert!(facts.violations.is_empty());
    for second in 40..60 {
        facts.gone_but_alive(after(second), &[(3, 1)].into(), secs(30));
    }
    found(&facts, "G15");
    let mut facts = Facts::default();
    facts.knows_and_goes_on(AT, 3);
    found(&facts, "G15");
}

#[test]
fn g16_a_flood_is_found() {
    let mut facts = Facts::new(&Config::default());
    let beat = Message::Heartbeat { nonce: 1 };
    facts.calm(Some(AT));
    for second in 3..10 {
        for _ in 0..12 {
            facts.sent(after(second), &header(1, 2), &beat);
        }
    }
    assert!(facts.violations.is_empty());
    for _ in 0..100 {
        facts.sent(after(20), &header(1, 2), &beat);
    }
    found(&facts, "G16");
    let mut facts = Facts::new(&Config::default());
    facts.bound_states(20);
    for _ in 0..420 {
        facts.state_arrived(after(1), 0, false);
    }
    assert!(facts.violations.is_empty());
    facts.state_arrived(after(1), 0, false);
    found(&facts, "G16");
    // What waited leads to more, and not to any number.
    let mut facts = Facts::new(&Config::default());
    facts.bound_states(20);
    for n in 0..520 {
        facts.state_arrived(after(1), 0, n < 20);
    }
    assert!(facts.violations.is_empty());
    facts.state_arrived(after(1), 0, false);
    found(&facts, "G16");
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
