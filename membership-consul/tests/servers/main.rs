//! What is Consul's own: tokens and policies, TLS, several servers, wrong addresses, keys of others, hints over restarts.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

mod addresses;
mod hints;
mod layout;
mod several;
mod tokens;
