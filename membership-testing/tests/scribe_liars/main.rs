//! Members that lie in their messages, where one silo writes for many, and news is passed on: what the
//! suite `liars` asks, and what only these messages can do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_macros
)]

use membership_core::hooks::ProtocolVariant;

#[path = "../liars/deaths.rs"]
mod deaths;
#[path = "../liars/farewells.rs"]
mod farewells;
#[path = "../liars/healthy.rs"]
mod healthy;
#[path = "../liars/liar.rs"]
mod liar;
#[path = "../liars/load.rs"]
mod load;
mod news;
mod requests;
mod standing;
#[path = "../liars/survivors.rs"]
mod survivors;

/// As in a cluster of hundreds.
const VARIANT: ProtocolVariant = ProtocolVariant {
    full_check_limit: Some(4),
    flood_above: Some(3),
    kept_views: 3,
    ..ProtocolVariant::SCRIBE
};
