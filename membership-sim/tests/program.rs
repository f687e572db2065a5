//! Runs the program as its users do.
#![allow(missing_docs, clippy::unwrap_used)]

use std::process::{Command, Output};

fn sim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_membership-sim"))
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn a_campaign_reports_its_seeds_and_its_counts() {
    let campaign = sim(&[
        "campaign",
        "--seeds",
        "7..9",
        "--silos",
        "5",
        "--minutes",
        "2",
    ]);
    let text = String::from_utf8_lossy(&campaign.stdout);
    assert!(campaign.status.success(), "{campaign:?}");
    assert!(text.contains("seeds 7..9"), "{text}");
    assert!(text.contains("2 runs of 5 silos"), "{text}");
}

#[test]
fn for_without_daily_is_an_error() {
    let refused = sim(&["campaign", "--for", "60"]);
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && text.contains("--daily"),
        "{text}"
    );
}
