//! Keep oldest, down all, lease majority.

use membership_gossip::downing::{Strategy, lease_delay};

use super::{ALL, INDIRECT, REACHABLE, UNREACHABLE, check, worker};
use crate::{decided, situation};

pub(crate) fn keep_oldest() -> usize {
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
                "the oldest is alone, with one that was never up",
                "a bv | c d",
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

pub(crate) fn down_all() -> usize {
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

pub(crate) fn lease_majority() -> usize {
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
            "those who were never up do not make a side larger",
            "d e fv gv | a b c",
            2,
        ),
        (
            "nobody waits if some are connected indirectly",
            "d* e | a b* c",
            0,
        ),
    ] {
        let delay = lease_delay(&strategy, &situation(text));
        assert_eq!(delay.as_secs(), seconds, "{name}");
    }
    cases.len() + 6
}
