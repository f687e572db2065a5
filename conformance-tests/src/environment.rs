//! The environment variables that choose the seed, the cases and the effort of a run, so that a
//! failure can be repeated without a change of code.

use crate::Clause;

/// The seed of a run.
pub(crate) const SEED: &str = "MEMBERSHIP_CONFORMANCE_SEED";
/// The cases, by their names.
pub(crate) const CASES: &str = "MEMBERSHIP_CONFORMANCE_CASES";
const CLAUSES: &str = "MEMBERSHIP_CONFORMANCE_CLAUSES";
const EFFORT: &str = "MEMBERSHIP_CONFORMANCE_EFFORT";
const SETUPS: &str = "MEMBERSHIP_CONFORMANCE_SETUPS";

/// How much work the environment asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Asked {
    Quick,
    #[default]
    Usual,
    Soak,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Environment {
    pub seed: Option<u64>,
    pub cases: Vec<String>,
    pub clauses: Vec<Clause>,
    pub effort: Asked,
    pub whole: bool,
}

impl Environment {
    /// Reads the environment of this process; an error names a wrong value.
    pub fn read() -> Result<Self, String> {
        Self::parse(|name| std::env::var(name).ok())
    }

    fn parse(value: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let list = |name| {
            let text = value(name).unwrap_or_default();
            text.split(',')
                .map(str::trim)
                .filter(|part| !part.is_empty())
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let clauses = list(CLAUSES).into_iter().map(|text| {
            text.parse::<Clause>()
                .map_err(|e| format!("{CLAUSES}: {e}"))
        });
        let seed = value(SEED).map(|text| {
            text.trim()
                .parse()
                .map_err(|_| format!("{SEED}: `{text}` is not a number of 64 bits"))
        });
        let effort = match value(EFFORT).as_deref().map(str::trim) {
            None | Some("") => Asked::Usual,
            Some("quick") => Asked::Quick,
            Some("soak") => Asked::Soak,
            Some(other) => {
                return Err(format!(
                    "{EFFORT}: `{other}` is not an effort: write `quick` or `soak`, or unset it"
                ));
            }
        };
        let whole = match value(SETUPS).as_deref().map(str::trim) {
            None | Some("") => false,
            Some("whole") => true,
            Some(other) => {
                return Err(format!(
                    "{SETUPS}: `{other}` is unknown: write `whole`, or unset it"
                ));
            }
        };
        Ok(Self {
            seed: seed.transpose()?,
            cases: list(CASES),
            clauses: clauses.collect::<Result<_, _>>()?,
            effort,
            whole: whole || effort == Asked::Soak,
        })
    }
}

/// The command that runs one case again: that of the running cargo test, as far as it is known.
pub(crate) fn replay(seed: u64, case: &str) -> String {
    // Cargo sets it for the tests that it runs.
    let package = std::env::var("CARGO_PKG_NAME")
        .map(|name| format!(" -p {name}"))
        .unwrap_or_default();
    let program = std::env::current_exe().ok();
    let target = program
        .as_ref()
        .and_then(|p| p.file_stem()?.to_str())
        .and_then(target)
        .unwrap_or("conformance");
    // A test runs in a thread with its name.
    let thread = std::thread::current();
    let test = thread
        .name()
        .filter(|name| *name != "main" && !name.starts_with("tokio-"))
        .unwrap_or_default();
    let command = format!(
        "{SEED}={seed} {CASES}={case} cargo test{package} --test {target} -- --nocapture {test}"
    );
    command.trim_end().to_owned()
}

/// The target of a test program: cargo appends a hash to its name.
fn target(stem: &str) -> Option<&str> {
    let (name, hash) = stem.rsplit_once('-')?;
    (hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit())).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_program_names_its_target() {
        assert_eq!(target("conformance-00db91db0723c8f1"), Some("conformance"));
        assert_eq!(target("my-suite-00db91db0723c8f1"), Some("my-suite"));
        assert_eq!(target("membership"), None);
        let again = replay(7, "round_trips");
        assert!(
            again.starts_with(
                "MEMBERSHIP_CONFORMANCE_SEED=7 MEMBERSHIP_CONFORMANCE_CASES=round_trips cargo test"
            ),
            "{again}"
        );
        assert!(
            again.ends_with("environment::tests::a_test_program_names_its_target"),
            "{again}"
        );
    }

    fn parse(name: &'static str, text: &'static str) -> Result<Environment, String> {
        Environment::parse(|asked| (asked == name).then(|| text.to_owned()))
    }

    #[test]
    fn values_are_parsed_or_refused() {
        assert_eq!(parse("", ""), Ok(Environment::default()));
        assert_eq!(parse(SEED, "4711").unwrap().seed, Some(4711));
        assert_eq!(
            parse(CASES, "a_case, another").unwrap().cases,
            ["a_case", "another"]
        );
        assert_eq!(
            parse(CLAUSES, "T5,t13").unwrap().clauses,
            [Clause::T5, Clause::T13]
        );
        let soak = parse(EFFORT, "soak").unwrap();
        assert!(soak.effort == Asked::Soak && soak.whole);
        assert_eq!(parse(EFFORT, "quick").unwrap().effort, Asked::Quick);
        assert!(parse(SETUPS, "whole").unwrap().whole);
        for (name, text) in [
            (SEED, "abc"),
            (CLAUSES, "T99"),
            (EFFORT, "hard"),
            (SETUPS, "some"),
        ] {
            let error = parse(name, text).unwrap_err();
            assert!(error.contains(name) && error.contains(text), "{error}");
        }
    }
}
