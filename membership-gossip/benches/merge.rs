//! Costs of a large cluster: `cargo bench -p membership-gossip --bench merge`.
//!
//! Prints a table and fails if a merge of 10,000 members takes more than 2 ms, or if a ratio is above
//! its limit. Each time is the minimum of many short rounds, because other load on the machine can
//! only lengthen a round.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout
)]

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use membership_core::{InstanceId, SiloAddress, SiloInfo};
use membership_gossip::state::{Flag, Gossip, MemberStatus, Profile, State};

const SMALL: u32 = 1_000;
const LARGE: u32 = 10_000;
/// What the merge of 10,000 members may take.
const MOST: Duration = Duration::from_millis(2);

fn main() -> ExitCode {
    // `cargo test --all-targets` runs benchmarks without this argument; it is not the place to
    // measure time.
    if !std::env::args().any(|a| a == "--bench") {
        println!("not measured: run it with `cargo bench`");
        return ExitCode::SUCCESS;
    }
    println!(
        "{:<52} {:>10} {:>10} {:>7}",
        "one merge", "10,000", "1,000", "ratio"
    );
    let mut good = true;
    for (name, change) in [
        ("the same state", nothing as fn(&mut State)),
        ("one member moved", one_moved),
        ("one flag", one_flag),
        ("a hundredth came, a hundredth was removed", churn),
        ("every member moved", all_moved),
    ] {
        let (large, small) = (merging(LARGE, change), merging(SMALL, change));
        let ratio = large.as_secs_f64() / small.as_secs_f64();
        let ok = large <= MOST && ratio <= 30.0;
        good &= ok;
        let (large, small) = (format!("{large:.1?}"), format!("{small:.1?}"));
        let verdict = if ok { "yes" } else { "NO" };
        println!("{name:<52} {large:>10} {small:>10} {ratio:>7.1}  {verdict}");
    }
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn address(i: u32, epoch: u64) -> SiloAddress {
    let [_, a, b, c] = i.to_be_bytes();
    SiloAddress::new([10, a, b, c].into(), 7100, epoch)
}

fn cluster(members: u32) -> State {
    let mut state = State::default();
    state.edit(address(0, 1), |edit| {
        for i in 0..members {
            let mut info = SiloInfo::named(format!("orders-{i}"));
            info.role = "orders".to_owned();
            info.zone = format!("zone-{}", i % 3);
            edit.admit(address(i, 1), InstanceId::new(i.into()), Profile::new(info));
        }
    });
    state.edit(address(0, 1), |edit| {
        for i in 0..members {
            edit.advance(&address(i, 1), MemberStatus::Up, Some(u64::from(i) + 1));
        }
    });
    state
}

fn nothing(_: &mut State) {}

fn one_moved(state: &mut State) {
    state.edit(address(1, 1), |edit| {
        edit.advance(&address(7, 1), MemberStatus::Leaving, None)
    });
}

fn one_flag(state: &mut State) {
    state.edit(address(1, 1), |edit| {
        edit.flag(&address(7, 1), Some(Flag::Unreachable))
    });
}

fn churn(state: &mut State) {
    let members = u32::try_from(state.members().len()).unwrap_or(0);
    state.edit(address(1, 1), |edit| {
        let profile = Arc::new(Profile::new(SiloInfo::named("new")));
        for i in 0..members / 100 {
            edit.remove(&address(2 + i, 1));
            let new = address(members + i, 1);
            edit.admit(new, InstanceId::new(1), Arc::clone(&profile));
        }
    });
}

fn all_moved(state: &mut State) {
    let members = u32::try_from(state.members().len()).unwrap_or(0);
    state.edit(address(1, 1), |edit| {
        for i in 0..members {
            edit.advance(&address(i, 1), MemberStatus::Down, None);
        }
    });
}

/// The shortest time of a merge of a changed state into the one before, with its seen set.
fn merging(members: u32, change: fn(&mut State)) -> Duration {
    let before = cluster(members);
    let mut after = before.clone();
    change(&mut after);
    let (before, after) = (Gossip::new(before), Gossip::new(after));
    (0..40).fold(Duration::MAX, |least, _| {
        // The state is not shared while it is merged; to make it so is part of the merge.
        let mut mine = before.clone();
        let begun = Instant::now();
        black_box(mine.merge(&after));
        let took = begun.elapsed();
        drop(mine);
        least.min(took)
    })
}
