//! The table: name, situation, verdict, who is downed.

mod indirect;
mod oldest_and_lease;

use membership_gossip::downing::Strategy;

use super::{decided, situation};

type Case = (&'static str, &'static str, &'static str, &'static str);

fn check(strategy: &Strategy, cases: &[Case]) -> usize {
    let mut names = std::collections::BTreeSet::new();
    for (name, text, verdict, down) in cases {
        let found = decided(strategy, &situation(text));
        let due = ((*verdict).to_owned(), (*down).to_owned());
        assert_eq!(found, due, "{strategy:?}: {name}: {text}");
        assert!(names.insert(name), "{name} twice");
    }
    cases.len()
}

const UNREACHABLE: &str = "down-unreachable";
const REACHABLE: &str = "down-reachable";
const ALL: &str = "down-all";
const INDIRECT: &str = "down-indirectly-connected";

fn worker() -> Option<String> {
    Some("worker".to_owned())
}

fn static_quorum() -> usize {
    let strategy = Strategy::StaticQuorum {
        size: 3,
        role: None,
    };
    let of_role = Strategy::StaticQuorum {
        size: 2,
        role: worker(),
    };
    check(
        &strategy,
        &[
            (
                "a side with the quorum goes on",
                "a b c | d e",
                UNREACHABLE,
                "de",
            ),
            ("a side without it ends", "d e | a b c", REACHABLE, "de"),
            (
                "exactly the quorum is enough",
                "c d e | a b",
                UNREACHABLE,
                "ab",
            ),
            ("a crash of one", "a b c d | e", UNREACHABLE, "e"),
            ("more members than are safe", "a b c | d e f", ALL, "abcdef"),
            (
                "more members than are safe, one crashed",
                "a b c d e | f",
                ALL,
                "abcdef",
            ),
            ("no side has the quorum", "a b | c d", REACHABLE, "ab"),
            (
                "a joining member does not count for the quorum",
                "a b cj | d e",
                REACHABLE,
                "abc",
            ),
            (
                "a weakly up member does not count either",
                "a b cw | d e",
                REACHABLE,
                "abc",
            ),
            ("a leaving member counts", "a b cl | d e", UNREACHABLE, "de"),
            (
                "one that leaves before it was up does not",
                "a b cv | d e",
                REACHABLE,
                "abc",
            ),
            (
                "and is not one too many",
                "a b c | d e fv",
                UNREACHABLE,
                "def",
            ),
            (
                "an exiting member does not count and is not downed",
                "a b cx | d e",
                REACHABLE,
                "ab",
            ),
            (
                "one that is down already is not downed again",
                "a b c | d ed",
                UNREACHABLE,
                "d",
            ),
            (
                "an unreachable joiner is downed",
                "a b c | d ej",
                UNREACHABLE,
                "de",
            ),
            (
                "an unreachable exiting member is left to the leader",
                "a b c | d ex",
                UNREACHABLE,
                "d",
            ),
            (
                "indirectly connected ones go and the rest stays",
                "a b c | d* e*",
                INDIRECT,
                "de",
            ),
            (
                "indirectly connected ones go, then the quorum is judged",
                "a b c | d* e",
                UNREACHABLE,
                "de",
            ),
        ],
    ) + check(
        &of_role,
        &[
            (
                "only members of the role count",
                "a@ b@ c | d e f",
                UNREACHABLE,
                "def",
            ),
            (
                "a side without the role ends",
                "c d e f | a@ b@",
                REACHABLE,
                "cdef",
            ),
            ("too many of the role", "a@ b@ | c@ d@", ALL, "abcd"),
        ],
    )
}

fn keep_majority() -> usize {
    let strategy = Strategy::KeepMajority { role: None };
    let of_role = Strategy::KeepMajority { role: worker() };
    check(
        &strategy,
        &[
            ("the larger side goes on", "a b c | d e", UNREACHABLE, "de"),
            ("the smaller side ends", "d e | a b c", REACHABLE, "de"),
            (
                "of two halves the one with the lowest address goes on",
                "a c | b d",
                UNREACHABLE,
                "bd",
            ),
            (
                "of two halves the other one ends",
                "b d | a c",
                REACHABLE,
                "bd",
            ),
            ("one of two, the lower one", "a | b", UNREACHABLE, "b"),
            ("one of two, the higher one", "b | a", REACHABLE, "b"),
            (
                "a crash of one of many",
                "a b c d e f | g",
                UNREACHABLE,
                "g",
            ),
            ("one that is alone", "g | a b c d e f", REACHABLE, "g"),
            (
                "joiners of this side do not make it larger",
                "a bj cj | d e",
                REACHABLE,
                "abc",
            ),
            (
                "joiners of the other side may be up by now",
                "a b c | d ej fj gj",
                ALL,
                "abcdefg",
            ),
            (
                "few joiners of the other side change nothing",
                "a b c | d ej",
                UNREACHABLE,
                "de",
            ),
            (
                "as many with the joiners, the lowest address here",
                "a b c | d ej fj",
                UNREACHABLE,
                "def",
            ),
            (
                "as many with the joiners, the lowest address there",
                "b c d | aj e fj",
                ALL,
                "abcdef",
            ),
            (
                "a weakly up member of the other side counts as a joiner",
                "b c | aw d",
                ALL,
                "abcd",
            ),
            (
                "leavers of this side may be gone by now",
                "a bl cl | d e",
                ALL,
                "abcde",
            ),
            (
                "leavers of this side that were never up do not make it larger",
                "a bv cv | d e",
                REACHABLE,
                "abc",
            ),
            (
                "those of the other side may be up there, as joiners may",
                "a b c | d ev fv gv",
                ALL,
                "abcdefg",
            ),
            (
                "one leaver of a large side changes nothing",
                "a b c dl | e f",
                UNREACHABLE,
                "ef",
            ),
            (
                "leavers of the other side count",
                "a b c | dl el",
                UNREACHABLE,
                "de",
            ),
            (
                "exiting members do not count",
                "a b cx dx | e f g",
                REACHABLE,
                "ab",
            ),
            (
                "exiting members of the other side are left",
                "a b | cx dx",
                UNREACHABLE,
                "",
            ),
            (
                "members that are down do not count",
                "a b cd | e f g",
                REACHABLE,
                "ab",
            ),
            ("nobody counts: all are joining", "aj bj | cj", ALL, "abc"),
            ("only one counts", "a bj | cj", UNREACHABLE, "c"),
            (
                "two do not reach each other, all others do",
                "a b c d* e* |",
                INDIRECT,
                "de",
            ),
            (
                "the same, seen by one of them",
                "a b c e* | d*",
                INDIRECT,
                "de",
            ),
            (
                "indirectly connected, and a crash",
                "a b c d* e* f | g",
                UNREACHABLE,
                "deg",
            ),
            (
                "indirectly connected ones count as reached for the rest",
                "f g | a b c d* e*",
                UNREACHABLE,
                "abcde",
            ),
            (
                "half are connected indirectly",
                "a b c* d* |",
                INDIRECT,
                "cd",
            ),
            ("more than half are", "a b c* d* e* |", ALL, "abcde"),
        ],
    ) + check(
        &of_role,
        &[
            (
                "the side with more of the role goes on",
                "a@ b@ | c d e f@",
                UNREACHABLE,
                "cdef",
            ),
            (
                "the side with fewer of the role ends",
                "c d e f@ | a@ b@",
                REACHABLE,
                "cdef",
            ),
            (
                "as many of the role: the lowest of the role",
                "a c@ | b@ d",
                REACHABLE,
                "ac",
            ),
            ("nobody has the role", "a b | c", ALL, "abc"),
        ],
    )
}

#[test]
fn the_table() {
    let cases = [
        static_quorum(),
        keep_majority(),
        oldest_and_lease::keep_oldest(),
        oldest_and_lease::down_all(),
        oldest_and_lease::lease_majority(),
    ];
    let all: usize = cases.iter().sum();
    assert!(all >= 60, "{all}");
}
