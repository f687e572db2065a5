//! Every case, in the order in which they run. Each file is one part of the contract.

mod busy;
mod cancel;
mod commit;
mod content;
mod contention;
mod damage;
mod heartbeats;
mod hints;
mod initialize;
mod isolation;
mod leftovers;
mod limits;
mod long;
mod proxied;
mod reads;
mod replaced;
mod retry;
mod secrets;
mod table_ext;
mod unavailable;

use crate::case::Case;

/// Every case.
pub(crate) static ALL: &[&[Case]] = &[
    initialize::CASES,
    commit::CASES,
    retry::CASES,
    reads::CASES,
    heartbeats::CASES,
    leftovers::CASES,
    isolation::CASES,
    content::CASES,
    limits::CASES,
    table_ext::CASES,
    damage::CASES,
    cancel::CASES,
    proxied::DROPPED,
    proxied::CREATED,
    proxied::CUT,
    secrets::CASES,
    replaced::CASES,
    proxied::ANEW,
    hints::CASES,
    proxied::TRIPS,
    contention::CASES,
    busy::CASES,
    long::CASES,
    proxied::AWAY,
    unavailable::CASES,
];
