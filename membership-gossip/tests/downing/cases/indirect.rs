//! Who is connected indirectly.

use membership_core::SiloAddress;
use membership_gossip::downing::{Strategy, indirectly_connected};

use super::{ALL, INDIRECT, UNREACHABLE};
use crate::{address, decided, letters, situation};

/// Flags as text: observer and subject.
fn links(flags: &str) -> Vec<(SiloAddress, SiloAddress)> {
    let flags = flags.split_whitespace().map(|flag| {
        let mut ends = flag.chars().map(address);
        (ends.next().unwrap(), ends.next().unwrap())
    });
    flags.collect()
}

/// Who of these has seen the state, and is to blame for the flags.
fn indirect(flags: &str, seen: &str) -> String {
    let found = indirectly_connected(&links(flags), |member| {
        seen.chars().map(address).any(|s| s == *member)
    });
    letters(&found)
}

#[test]
fn who_is_connected_indirectly() {
    for (name, flags, seen, found) in [
        ("a clean crash", "ad bd", "abc", ""),
        ("a clean split, seen from one side", "ad be", "abc", ""),
        ("two that flag each other", "de ed", "abcde", "de"),
        (
            "one of them has not seen it: it is on the other side, and its flag is old",
            "de ed",
            "abcd",
            "",
        ),
        (
            "both are on the other side, their flags are old",
            "de ed",
            "abc",
            "",
        ),
        (
            "one broken link, the subject has seen the state",
            "de",
            "abcde",
            "de",
        ),
        ("one broken link, the subject has not", "de", "abcd", ""),
        ("one that several do not reach", "ae be de", "abcde", "e"),
        (
            "two groups and a bridge",
            "ac ad bc bd ca cb da db",
            "abcde",
            "abcd",
        ),
        ("a chain of those that are gone", "ab bc", "", ""),
        (
            "an observer that all others flag is not believed",
            "ad ae ba ca",
            "bcde",
            "",
        ),
        ("that one has seen it", "ad ae ba ca", "abcde", "a"),
        (
            "one that flags many, and that nobody flags",
            "ad ae ac",
            "abcde",
            "a",
        ),
        ("two that do so", "ad ae bc bf", "abcdef", "ab"),
        (
            "one that flags many, and one of them flags it",
            "ad ae ac da",
            "abcde",
            "a",
        ),
        (
            "one that flags others, and another broken link",
            "ad ae bc",
            "abcde",
            "abc",
        ),
        (
            "two that several flag, by one that is well, too",
            "ad ae bd ce",
            "abcde",
            "de",
        ),
        (
            "two that most flag, and that flag one who is well",
            "ca da ea fb gb hb ac bc",
            "abcdefgh",
            "ab",
        ),
        ("a chain of broken links", "ab bc cd", "abcd", "bc"),
        ("with one other accuser only, it is", "ab ba ac", "ab", "ab"),
        ("nobody is flagged", "", "abc", ""),
    ] {
        assert_eq!(indirect(flags, seen), found, "{name}");
    }
}

#[test]
fn a_tie_ends_everybody_only_if_nothing_less_is_safe() {
    let majority = Strategy::KeepMajority { role: None };
    let oldest = Strategy::KeepOldest {
        down_if_alone: true,
        role: None,
    };
    let quorum = Strategy::StaticQuorum {
        size: 5,
        role: None,
    };
    let two_groups = "ac ad bc bd ca cb da db";
    for (name, strategy, text, flags, verdict, down) in [
        (
            "the youngest goes first",
            &majority,
            "e | a b c d",
            two_groups,
            INDIRECT,
            "cd",
        ),
        (
            "one that is not up yet is younger",
            &majority,
            "e f | aj b c d",
            two_groups,
            INDIRECT,
            "ab",
        ),
        (
            "the oldest stays",
            &oldest,
            "e f | a b c d^",
            two_groups,
            INDIRECT,
            "ab",
        ),
        (
            "the rest has no quorum",
            &quorum,
            "e f | a b c d",
            two_groups,
            ALL,
            "abcdef",
        ),
        (
            "the other side may be larger",
            &majority,
            "e | a b c d f g",
            two_groups,
            ALL,
            "abcdefg",
        ),
        (
            "with a third group beyond reach",
            &majority,
            "e g | a b c d f",
            two_groups,
            UNREACHABLE,
            "cdf",
        ),
        (
            "the ends of a link are not too many",
            &majority,
            "a b e | c d",
            "cd",
            INDIRECT,
            "cd",
        ),
        (
            "the ends of a link, of three",
            &majority,
            "b | a c",
            "ac",
            ALL,
            "abc",
        ),
        ("nobody else is there", &majority, "| a b", "ab", ALL, "ab"),
    ] {
        let situation = situation(text).with_broken_links(links(flags));
        let due = (verdict.to_owned(), down.to_owned());
        assert_eq!(decided(strategy, &situation), due, "{name}");
    }
}
