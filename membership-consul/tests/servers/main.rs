//! Behaviour of Consul alone: tokens and policies, TLS, several servers, wrong addresses, foreign
//! keys, hints over restarts.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

mod addresses;
mod hints;
mod layout;
mod played;
mod quiet;
mod several;
mod tokens;
mod worst_day;
