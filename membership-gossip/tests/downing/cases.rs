//! The table: name, situation, verdict, who is downed.

use membership_gossip::downing::{Strategy, indirectly_connected, lease_delay};

use super::{address, decided, letters, situation};

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

fn keep_oldest() -> usize {
    let alone_ends = Strategy::KeepOldest {
        down_if_alone: true,
        role: None,
    };
    let alone_stays = Strategy::KeepOldest {
        down_if_alone: false,
        role: None,
    };
    let of_role = Strategy::KeepOldest {
        down_if_alone: true,
        role: worker(),
    };
    check(
        &alone_ends,
        &[
            (
                "the side of the oldest goes on",
                "a b | c d e",
                UNREACHABLE,
                "cde",
            ),
            (
                "the other side ends, though it is larger",
                "c d e | a b",
                REACHABLE,
                "cde",
            ),
            (
                "the oldest is not the one with the lowest address",
                "a b | c^ d",
                REACHABLE,
                "ab",
            ),
            ("an oldest that is alone ends", "a | b c", REACHABLE, "a"),
            ("and the others go on", "b c | a", UNREACHABLE, "a"),
            ("of two the oldest goes on", "a | b", UNREACHABLE, "b"),
            ("of two the younger one ends", "b | a", REACHABLE, "b"),
            ("the oldest crashed", "b c d | a", UNREACHABLE, "a"),
            (
                "the only companion of the oldest leaves",
                "a bl | c d",
                ALL,
                "abcd",
            ),
            (
                "one of two companions leaves",
                "a b cl | d e",
                UNREACHABLE,
                "de",
            ),
            (
                "the oldest of this side leaves, the next is there",
                "al b^ c | d",
                UNREACHABLE,
                "d",
            ),
            (
                "the oldest leaves, the next oldest is on the other side",
                "al c | b d",
                ALL,
                "abcd",
            ),
            (
                "the oldest is alone, with a joiner",
                "a bj | c d",
                REACHABLE,
                "ab",
            ),
            (
                "one member and joiners of the other side",
                "a b | c dj",
                UNREACHABLE,
                "cd",
            ),
            (
                "the oldest alone may have got company",
                "b c | a dj",
                ALL,
                "abcd",
            ),
            ("nobody is up", "aj | bj", ALL, "ab"),
            (
                "the oldest is exiting: the next one counts",
                "b c | ax d",
                UNREACHABLE,
                "d",
            ),
            (
                "indirectly connected ones go",
                "a b c | d* e*",
                INDIRECT,
                "de",
            ),
            (
                "the oldest is connected indirectly",
                "a* b* c d e |",
                INDIRECT,
                "ab",
            ),
        ],
    ) + check(
        &alone_stays,
        &[
            (
                "an oldest that is alone goes on",
                "a | b c d",
                UNREACHABLE,
                "bcd",
            ),
            ("and all others end", "b c d | a", REACHABLE, "bcd"),
            ("a joiner is not the oldest", "b c | aj", UNREACHABLE, "a"),
        ],
    ) + check(
        &of_role,
        &[
            (
                "the oldest of the role decides",
                "a b@ c@ | d@ e",
                UNREACHABLE,
                "de",
            ),
            (
                "the side without the oldest of the role ends",
                "a d@ | b@ c@",
                REACHABLE,
                "ad",
            ),
            ("nobody has the role", "a | b", ALL, "ab"),
        ],
    )
}

fn down_all() -> usize {
    check(
        &Strategy::DownAll,
        &[
            ("whatever the sides are", "a b c | d", ALL, "abcd"),
            ("joiners, too", "a bj | c", ALL, "abc"),
            (
                "not those that are exiting or down",
                "a bx | cd d",
                ALL,
                "ad",
            ),
            ("indirectly connected", "a* b* c |", ALL, "abc"),
        ],
    )
}

fn lease_majority() -> usize {
    let strategy = Strategy::LeaseMajority {
        role: None,
        delay_for_minority: std::time::Duration::from_secs(2),
        release_after: std::time::Duration::from_secs(40),
    };
    let cases = [
        ("not asked yet", "a b | c", None, "ask-lease", ""),
        (
            "the majority gets it",
            "a b | c",
            Some(true),
            UNREACHABLE,
            "c",
        ),
        (
            "the minority gets it",
            "c | a b",
            Some(true),
            UNREACHABLE,
            "ab",
        ),
        (
            "the majority does not get it",
            "a b | c",
            Some(false),
            REACHABLE,
            "ab",
        ),
        (
            "indirectly connected, not asked yet",
            "a b c* d* |",
            None,
            "ask-lease",
            "",
        ),
        (
            "indirectly connected, got it",
            "a b c* d* |",
            Some(true),
            INDIRECT,
            "cd",
        ),
        (
            "indirectly connected and a split, got it",
            "a b c* d* | e",
            Some(true),
            UNREACHABLE,
            "cde",
        ),
        (
            "indirectly connected, did not get it",
            "a b c* | d*",
            Some(false),
            REACHABLE,
            "abcd",
        ),
    ];
    for (name, text, lease, verdict, down) in cases {
        let mut at = situation(text);
        at.lease = lease;
        assert_eq!(
            decided(&strategy, &at),
            (verdict.to_owned(), down.to_owned()),
            "{name}"
        );
    }
    // Who waits before it asks.
    for (name, text, seconds) in [
        ("the majority does not wait", "a b c | d e", 0),
        ("the minority waits", "d e | a b c", 2),
        ("the half with the lowest address does not", "a d | b c", 0),
        ("the other half waits", "b c | a d", 2),
        (
            "nobody waits if some are connected indirectly",
            "d* e | a b* c",
            0,
        ),
    ] {
        let delay = lease_delay(&strategy, &situation(text));
        assert_eq!(delay.as_secs(), seconds, "{name}");
    }
    cases.len() + 5
}

#[test]
fn the_table() {
    let cases = [
        static_quorum(),
        keep_majority(),
        keep_oldest(),
        down_all(),
        lease_majority(),
    ];
    let all: usize = cases.iter().sum();
    assert!(all >= 60, "{all}");
}

/// Flags as text: observer and subject.
fn indirect(flags: &str, seen: &str) -> String {
    let flags: Vec<_> = flags
        .split_whitespace()
        .map(|flag| {
            let mut ends = flag.chars().map(address);
            (ends.next().unwrap(), ends.next().unwrap())
        })
        .collect();
    let found = indirectly_connected(&flags, |member| {
        seen.chars().map(address).any(|s| s == *member)
    });
    letters(&found)
}

#[test]
fn who_is_connected_indirectly() {
    for (name, flags, seen, found) in [
        ("a clean crash", "ad bd", "abc", ""),
        ("a clean split, seen from one side", "ad be", "abc", ""),
        ("two that flag each other", "de ed", "abc", "de"),
        (
            "one broken link, the subject has seen the state",
            "de",
            "abcde",
            "de",
        ),
        ("one broken link, the subject has not", "de", "abcd", ""),
        ("a chain", "ab bc", "", "b"),
        (
            "an observer that all others flag is not believed",
            "ad ae ba ca",
            "",
            "",
        ),
        ("with one other accuser only, it is", "ab ba ac", "", "ab"),
        ("nobody is flagged", "", "abc", ""),
    ] {
        assert_eq!(indirect(flags, seen), found, "{name}");
    }
}
