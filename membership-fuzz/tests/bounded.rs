//! Every target reads some thousand inputs with each run of the tests.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::path::Path;

use membership_fuzz::{Mutator, TARGETS, campaign, repeat};
use proptest::prelude::*;

/// Inputs of each target and test.
const INPUTS: u32 = 3_000;

#[test]
fn valid_and_kept_inputs_break_no_rule() {
    for target in TARGETS {
        let mut inputs = (target.seeds)();
        assert!(!inputs.is_empty(), "{} has no valid input", target.name);
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
        for file in std::fs::read_dir(kept.join(target.name)).unwrap() {
            inputs.push(std::fs::read(file.unwrap().path()).unwrap());
        }
        for input in inputs {
            repeat(target, &input).unwrap_or_else(|broken| panic!("{}: {broken:?}", target.name));
        }
    }
}

#[test]
fn damaged_inputs_break_no_rule() {
    for target in TARGETS {
        let goes_on = |report: &membership_fuzz::Report| report.inputs < INPUTS.into();
        let (report, _) = campaign(target, 1, Vec::new(), goes_on)
            .unwrap_or_else(|broken| panic!("{}: {broken:?}", target.name));
        assert!(report.outcomes > 1, "{}: {report:?}", target.name);
    }
}

/// Shrinks what it finds.
#[test]
fn any_bytes_and_damaged_inputs_break_no_rule() {
    for target in TARGETS {
        let seeds = (target.seeds)();
        let damaged = (0..seeds.len(), any::<u64>()).prop_map(|(which, seed)| {
            let mut input = seeds[which].clone();
            Mutator::new(seed).change(&mut input, &seeds[0], target.words, target.longest);
            input
        });
        let anything = proptest::collection::vec(any::<u8>(), 0..400);
        let config = ProptestConfig {
            cases: INPUTS,
            failure_persistence: None,
            ..ProptestConfig::default()
        };
        let result = proptest::test_runner::TestRunner::new(config).run(
            &prop_oneof![1 => anything, 3 => damaged],
            |input| {
                repeat(target, &input).map_err(|broken| TestCaseError::fail(broken.why))?;
                Ok(())
            },
        );
        result.unwrap_or_else(|error| panic!("{}: {error}", target.name));
    }
}

/// `cargo fuzz` knows the same targets.
#[test]
fn every_target_can_be_run_by_cargo_fuzz() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    for target in TARGETS {
        let name = target.name;
        let source = folder.join(format!("fuzz_targets/{name}.rs"));
        let source = std::fs::read_to_string(&source).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(source.contains(&format!("read(\"{name}\", bytes)")));
        assert!(manifest.contains(&format!(
            "name = \"{name}\"\npath = \"fuzz_targets/{name}.rs\""
        )));
    }
    let files = std::fs::read_dir(folder.join("fuzz_targets")).unwrap();
    assert_eq!(files.count(), TARGETS.len());
}
