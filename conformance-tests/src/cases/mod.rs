//! Every case, in the order it runs. A file is one part of the contract.

mod cancel;
mod commit;
mod content;
mod damage;
mod heartbeats;
mod initialize;
mod isolation;
mod limits;
mod long;
mod reads;
mod replaced;
mod retry;
mod secrets;
mod unavailable;

use crate::case::Case;

/// Every case.
pub(crate) static ALL: &[&[Case]] = &[
    initialize::CASES,
    commit::CASES,
    retry::CASES,
    reads::CASES,
    heartbeats::CASES,
    isolation::CASES,
    content::CASES,
    limits::CASES,
    damage::CASES,
    cancel::CASES,
    secrets::CASES,
    replaced::CASES,
    long::CASES,
    unavailable::CASES,
];
