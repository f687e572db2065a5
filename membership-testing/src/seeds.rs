//! Which seeds a test runs.

use std::ops::Range;

/// The seeds of the variable `MEMBERSHIP_SEEDS`: `usual`, `rest` or `FROM..TO`. Without it, the
/// first fifth of `usual`, at least one. `rest` is the other four fifths, so that both together are
/// all usual seeds.
///
/// # Errors
/// A text that says what the variable may be.
pub fn chosen(usual: Range<u64>) -> Result<Range<u64>, String> {
    select(usual, std::env::var("MEMBERSHIP_SEEDS").ok().as_deref())
}

fn select(usual: Range<u64>, variable: Option<&str>) -> Result<Range<u64>, String> {
    let first = usual.start + (usual.end - usual.start).div_ceil(5);
    let parse = |text: &str| {
        let (from, to) = text.split_once("..")?;
        let seeds: Range<u64> = from.parse().ok()?..to.parse().ok()?;
        (!seeds.is_empty()).then_some(seeds)
    };
    match variable {
        None => Ok(usual.start..first),
        Some("usual") => Ok(usual),
        Some("rest") => Ok(first..usual.end),
        Some(text) => parse(text).ok_or_else(|| {
            format!(
                "MEMBERSHIP_SEEDS must be usual, rest or FROM..TO with FROM < TO, and is {text}"
            )
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_and_the_rest_are_all() {
        assert_eq!(select(0..300, None), Ok(0..60));
        assert_eq!(select(0..300, Some("rest")), Ok(60..300));
        assert_eq!(select(0..1, None), Ok(0..1));
        assert_eq!(select(0..1, Some("rest")), Ok(1..1));
        assert_eq!(select(0..5, Some("usual")), Ok(0..5));
        assert_eq!(select(0..5, Some("7..9")), Ok(7..9));
        for wrong in ["7", "9..7", "7..7", "all"] {
            assert!(
                select(0..5, Some(wrong)).is_err(),
                "{wrong}: a run of nothing proves nothing"
            );
        }
    }
}
