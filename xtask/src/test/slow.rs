//! Shares that took too long, on a machine of this speed.
//!
//! A machine that is slow today makes every share slow, and its tests are not to blame. A share that
//! is slow beside others that are not has a reason, which is investigated.

use std::time::Duration;

use super::run::Outcome;

/// What a share may take where shares take as long as their manifests say. On two cores, beside two
/// others, a MongoDB set of three takes up to five minutes: its linearizable reads wait for the
/// journal.
pub const LIMIT: Duration = Duration::from_secs(450);
/// The same where every case runs over every set-up.
pub const LIMIT_WHOLE: Duration = Duration::from_secs(900);
/// However slow the machine is, a share may take this many times its limit.
const SLOWEST: u32 = 2;
/// From so few shares nothing is concluded about the machine.
const FEW: usize = 5;

/// Fails the shares that took longer than `least`, or than that limit at the pace of this machine.
/// Returns what shares may take.
pub fn judge(outcomes: &mut [Outcome], least: Duration) -> Duration {
    let at_this_pace = LIMIT.mul_f64(pace(outcomes).min(1_000.0));
    let limit = at_this_pace.clamp(least, least * SLOWEST);
    for outcome in outcomes {
        if outcome.usual.is_some() && outcome.took > limit {
            outcome.wrong.push(format!(
                "took {} s, more than its limit of {} s",
                outcome.took.as_secs(),
                limit.as_secs()
            ));
        }
    }
    limit
}

/// How many times the usual time shares take here: the median.
fn pace(outcomes: &[Outcome]) -> f64 {
    let ratio = |outcome: &Outcome| {
        let usual = outcome.usual.filter(|usual| !usual.is_zero())?;
        Some(outcome.took.as_secs_f64() / usual.as_secs_f64())
    };
    let mut ratios: Vec<f64> = outcomes.iter().filter_map(ratio).collect();
    if ratios.len() < FEW {
        return 1.0;
    }
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(times: &[(u64, u64)]) -> Vec<Outcome> {
        let outcome = |(took, usual): &(u64, u64)| Outcome {
            name: "it".to_owned(),
            tests: 1,
            took: Duration::from_secs(*took),
            usual: (*usual > 0).then(|| Duration::from_secs(*usual)),
            wrong: Vec::new(),
        };
        times.iter().map(outcome).collect()
    }

    fn limit(times: &[(u64, u64)], least: Duration) -> (u64, usize) {
        let mut outcomes = outcomes(times);
        let limit = judge(&mut outcomes, least);
        let slow = outcomes.iter().filter(|outcome| !outcome.wrong.is_empty());
        (limit.as_secs(), slow.count())
    }

    #[test]
    fn a_slow_machine_is_no_slow_share() {
        // Those of one run on a machine that was half as fast as usual.
        let all = [(471, 210), (454, 230), (360, 200), (236, 120), (172, 105)];
        assert_eq!(limit(&all, LIMIT), (885, 0));
    }

    #[test]
    fn a_share_that_is_slow_beside_others_that_are_not_fails() {
        let one = [(471, 210), (230, 230), (200, 200), (120, 120), (105, 105)];
        assert_eq!(limit(&one, LIMIT), (450, 1));
    }

    #[test]
    fn where_all_are_very_slow_it_is_not_the_machine() {
        let all = [(2_000, 200), (950, 100), (850, 90), (500, 50), (500, 50)];
        assert_eq!(limit(&all, LIMIT), (900, 2));
    }

    #[test]
    fn a_few_shares_say_nothing_of_the_machine_and_commands_have_no_limit() {
        assert_eq!(limit(&[(500, 100), (500, 100)], LIMIT), (450, 2));
        assert_eq!(limit(&[(5_000, 0)], LIMIT), (450, 0));
    }

    #[test]
    fn every_case_over_every_set_up_takes_longer_by_itself() {
        let all = [(400, 200), (460, 230), (190, 100), (100, 50), (210, 105)];
        assert_eq!(limit(&all, LIMIT_WHOLE), (900, 0));
    }
}
