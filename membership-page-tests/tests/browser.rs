//! The page in a real browser, over real silos. Chromium and its driver are installed as the
//! servers of other tests are.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    missing_docs
)]

#[path = "browser/chromium.rs"]
mod chromium;
#[path = "browser/cluster.rs"]
mod cluster;
#[path = "browser/large.rs"]
mod large;
#[path = "browser/page.rs"]
mod page;
#[path = "browser/pictures.rs"]
mod pictures;
