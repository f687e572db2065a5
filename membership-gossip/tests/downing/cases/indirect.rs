//! Who is connected indirectly.

use membership_gossip::downing::indirectly_connected;

use crate::{address, letters};

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
