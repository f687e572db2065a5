//! The silos with which a joining silo has no two-way contact, in sentences.

use std::fmt;

use crate::SiloAddress;

/// A silo without two-way contact to the joining silo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreached {
    /// The silo.
    pub silo: SiloAddress,
    /// Whether it answers the joining silo.
    pub i_reach_it: bool,
    /// Whether it dialled the joining silo's advertised address and reached it.
    pub it_reaches_me: bool,
    /// The last error of the transport for it.
    pub last_error: Option<String>,
}

impl Unreached {
    /// The transport's error without the address, which is that of the silo.
    fn reason(&self) -> Option<String> {
        let error = self.last_error.as_deref()?;
        let address = format!("{}: ", self.silo.endpoint());
        Some(error.strip_prefix(&address).unwrap_or(error).to_owned())
    }
}

impl fmt::Display for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&list(std::slice::from_ref(self)))
    }
}

/// At most this many silos are named in one sentence.
const MAX_NAMES: usize = 8;

/// The silos by what is missing and why, so that one reason is told once for all that it concerns.
pub(super) fn list(unreached: &[Unreached]) -> String {
    let mut groups: Vec<(bool, bool, Option<String>, Vec<SiloAddress>)> = Vec::new();
    for one in unreached {
        let why = one.reason();
        let alike = groups.iter_mut().find(|(to, from, reason, _)| {
            (*to, *from) == (one.i_reach_it, one.it_reaches_me) && *reason == why
        });
        match alike {
            Some((.., silos)) => silos.push(one.silo),
            None => groups.push((one.i_reach_it, one.it_reaches_me, why, vec![one.silo])),
        }
    }
    let sentence = |(to, from, why, silos): &(bool, bool, Option<String>, Vec<SiloAddress>)| {
        let some = silos.iter().take(MAX_NAMES).map(ToString::to_string);
        let mut names = some.collect::<Vec<_>>().join(", ");
        if let Some(more @ 1..) = silos.len().checked_sub(MAX_NAMES) {
            names.push_str(&format!(" and {more} more"));
        }
        let why = why
            .as_ref()
            .map_or_else(String::new, |why| format!(" ({why})"));
        missing(&names, silos.len() > 1, *to, *from) + &why
    };
    groups.iter().map(sentence).collect::<Vec<_>>().join("; ")
}

/// Which direction is missing.
fn missing(names: &str, several: bool, i_reach: bool, reaches_me: bool) -> String {
    match (i_reach, reaches_me, several) {
        (true, false, false) => format!("{names} does not reach me, I reach it"),
        (true, false, true) => format!("{names} do not reach me, I reach them"),
        (false, true, false) => format!("I do not reach {names}, it reaches me"),
        (false, true, true) => format!("I do not reach {names}, they reach me"),
        (.., false) => format!("{names} and I do not reach each other"),
        (.., true) => format!("none of {names} and I reach each other"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unreached(port: u16, i_reach_it: bool, why: Option<&str>) -> Unreached {
        Unreached {
            silo: SiloAddress::new([10, 0, 0, 1].into(), port, 1),
            i_reach_it,
            it_reaches_me: false,
            last_error: why.map(str::to_owned),
        }
    }

    #[test]
    fn one_reason_is_told_once_for_all_that_it_concerns() {
        let several = [
            unreached(1, false, Some("10.0.0.1:1: it shows no secret")),
            unreached(2, true, None),
            unreached(3, false, Some("10.0.0.1:3: it shows no secret")),
        ];
        assert_eq!(
            list(&several),
            "none of 10.0.0.1:1@1, 10.0.0.1:3@1 and I reach each other (it shows no secret); \
             10.0.0.1:2@1 does not reach me, I reach it"
        );
        assert_eq!(
            unreached(1, false, Some("timed out")).to_string(),
            "10.0.0.1:1@1 and I do not reach each other (timed out)"
        );
    }

    #[test]
    fn a_large_cluster_is_one_line() {
        let all: Vec<Unreached> = (1..=100).map(|n| unreached(n, true, None)).collect();
        let text = list(&all);
        assert!(
            text.contains("10.0.0.1:8@1 and 92 more do not reach me"),
            "{text}"
        );
    }
}
