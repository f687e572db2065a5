//! Members that lie in their messages: what they must not be able to do, alone and beside ordinary
//! faults. Each test asserts what it wants of the table; the invariants are not checked, because some
//! of them trust members.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_macros
)]

use membership_core::hooks::ProtocolVariant;

mod deaths;
mod farewells;
mod healthy;
mod liar;
mod load;
mod survivors;

/// How the silos differ from the standard ones: see `scribe_liars`.
const VARIANT: ProtocolVariant = ProtocolVariant::STANDARD;
