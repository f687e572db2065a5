//! Decisions of the resolver: a table of named cases for each strategy, and what must hold for all
//! splits.
#![allow(clippy::unwrap_used, clippy::panic)]

mod cases;
mod splits;

use std::collections::BTreeSet;
use std::sync::Arc;

use membership_core::{InstanceId, SiloAddress, SiloInfo};
use membership_gossip::downing::{Downing, Situation, Strategy, decide};
use membership_gossip::state::{Member, MemberStatus, Profile, State};

/// Members by letter, `a` with the lowest address and, unless told otherwise, the oldest.
pub(crate) fn address(letter: char) -> SiloAddress {
    let last = u8::try_from(letter).unwrap() - b'a' + 1;
    SiloAddress::new([10, 0, 0, last].into(), 7100, 1)
}

pub(crate) fn letter(address: &SiloAddress) -> char {
    let last = address
        .ip()
        .to_string()
        .rsplit('.')
        .next()
        .unwrap()
        .parse::<u8>();
    char::from(last.unwrap() - 1 + b'a')
}

/// One member as text: its letter, then what is not usual: `j` joining, `w` weakly up, `l` leaving,
/// `x` exiting, `v` leaving before it was up, `d` down; `^` the oldest; `@` of the role `worker`.
fn member(text: &str) -> Arc<Member> {
    let (name, marks) = text.split_at(1);
    let name = name.chars().next().unwrap();
    let mut info = SiloInfo::named(name);
    if marks.contains('@') {
        info.role = "worker".to_owned();
    }
    let me = address(name);
    let mut up = u64::from(u32::from(name));
    if marks.contains('^') {
        up = 1;
    }
    use MemberStatus::{Down, Exiting, Leaving, Up, WeaklyUp};
    let path: &[MemberStatus] = match marks.trim_matches(['^', '@', '*']) {
        "" => &[Up],
        "j" => &[],
        "w" => &[WeaklyUp],
        "l" => &[Up, Leaving],
        "v" => &[Leaving],
        "x" => &[Up, Leaving, Exiting],
        "d" => &[Up, Down],
        other => panic!("no mark: {other}"),
    };
    let mut state = State::default();
    state.edit(me, |edit| {
        edit.admit(me, InstanceId::new(1), Profile::new(info))
    });
    for status in path {
        let up = (*status == Up).then_some(up);
        assert!(state.edit(me, |edit| edit.advance(&me, *status, up)));
    }
    Arc::clone(state.members().at(&me.endpoint()).unwrap())
}

/// A situation as text: who is reached, `|`, who is not; `*` marks those that are connected
/// indirectly.
pub(crate) fn situation(text: &str) -> Situation {
    let (_, unreached) = text.split_once('|').unwrap();
    let members = text.replace('|', " ");
    let members: Vec<_> = members.split_whitespace().map(str::to_owned).collect();
    let named = |part: &str| -> Vec<SiloAddress> {
        part.split_whitespace()
            .map(|m| address(m.chars().next().unwrap()))
            .collect()
    };
    let indirect = members.iter().filter(|m| m.contains('*'));
    let indirect: Vec<_> = indirect
        .map(|m| address(m.chars().next().unwrap()))
        .collect();
    Situation::new(members.iter().map(|m| member(m)), named(unreached)).with_indirect(indirect)
}

pub(crate) fn decided(strategy: &Strategy, situation: &Situation) -> (String, String) {
    let decision = decide(&Downing::new(strategy.clone()), situation);
    let down: String = decision.down.iter().map(letter).collect();
    let verdict = serde_json::to_value(decision.verdict).unwrap();
    (verdict.as_str().unwrap().to_owned(), down)
}

pub(crate) fn letters(addresses: &BTreeSet<SiloAddress>) -> String {
    addresses.iter().map(letter).collect()
}
