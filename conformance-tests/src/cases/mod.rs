//! Every case, in the order in which they run. Each file is one part of the contract.

mod busy;
mod cancel;
mod commit;
mod content;
mod contention;
mod damage;
mod deposed;
mod guarantees;
mod heartbeats;
mod hints;
mod initialize;
mod isolation;
mod leftovers;
mod limits;
mod long;
mod proxied;
mod reader;
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
    guarantees::CASES,
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
    reader::CASES,
    replaced::CASES,
    proxied::ANEW,
    hints::CASES,
    proxied::TRIPS,
    contention::CASES,
    busy::CASES,
    long::CASES,
    proxied::AWAY,
    unavailable::CASES,
    deposed::CASES,
    replaced::EMPTIED,
];

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// A case that vanishes from the lists above would be missed by nobody: every run would be
    /// complete without it.
    #[test]
    fn the_cases_are_those_of_the_reviewed_list() {
        let line = |(name, clauses): (&str, &[crate::Clause])| {
            let clauses: Vec<String> = clauses.iter().map(ToString::to_string).collect();
            format!("{name}: {}\n", clauses.join(" "))
        };
        let cases: String = crate::Suite::cases().map(line).collect();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases.txt");
        if std::env::var_os("MEMBERSHIP_BLESS").is_some_and(|value| value == "1") {
            std::fs::write(&path, &cases).unwrap();
        }
        assert_eq!(
            std::fs::read_to_string(&path).unwrap_or_default(),
            cases,
            "review the difference, and accept it with MEMBERSHIP_BLESS=1"
        );
    }
}
