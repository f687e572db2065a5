//! What roll calls cost this silo: the messages that it sent for its own and for those of others, as
//! a level that falls with time. After calls that gave no majority the next one waits until the level
//! is low, so that a lasting fault cannot double the load again and again (invariant P15). Where only a
//! sample is asked, a call that costs each silo little waits for less.

use std::time::Duration;

use crate::{Config, MonoTime};

/// The level above which every further call waits, in seconds of the quiet load.
const LOW: Duration = Duration::from_secs(15);
/// A level at which what was in vain is nearly paid for.
const CALM: Duration = Duration::from_secs(2);
/// The highest level, in seconds of the quiet load: no caller can hold back the calls of others for
/// longer.
const MOST: Duration = Duration::from_secs(75);
/// A call may begin when the level has so much room for its cost.
const ROOM: u32 = 2;
/// The messages that each silo that is asked sends for a call, and for each suspect of it: probes,
/// answers, and what the suspects and the caller send.
const PER_CALL: u32 = 3;
const PER_SUSPECT: u32 = 4;

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[derive(Debug, Default)]
pub(crate) struct Expense {
    /// When all messages so far will be paid for.
    until: MonoTime,
    /// When those for suspects that turned out to be there will be.
    in_vain_until: MonoTime,
}

impl Expense {
    /// The time in which one message is paid for: half of the quiet load goes to roll calls.
    fn price(config: &Config) -> Duration {
        config.probe_period / config.num_probed_silos.max(1)
    }

    pub(crate) fn add(&mut self, now: MonoTime, config: &Config) {
        self.until = (self.until.max(now) + Self::price(config)).min(now + MOST);
    }

    /// A suspect of a call has answered a probe for it.
    pub(crate) fn add_in_vain(&mut self, now: MonoTime, config: &Config) {
        let cost = Self::price(config) * PER_SUSPECT;
        self.in_vain_until = (self.in_vain_until.max(now) + cost).min(now + MOST);
    }

    /// How many suspects a call that begins now may take on beside its own: any number unless those of
    /// the last calls turned out to be there, so that silos that died together leave together. Else as
    /// many as keep the level of what was in vain low, and one.
    pub(crate) fn affords(&self, now: MonoTime, config: &Config) -> usize {
        let level = self.in_vain_until.since(now);
        if level <= CALM {
            return usize::MAX;
        }
        let room = (LOW / 2).saturating_sub(level).as_nanos();
        let cost = Self::price(config).as_nanos().max(1) * u128::from(PER_SUSPECT);
        usize::try_from(room / cost).unwrap_or(usize::MAX).max(1)
    }

    /// What a call about so many suspects costs each silo that is asked.
    fn cost(config: &Config, suspects: usize) -> Duration {
        let messages = count(suspects)
            .saturating_mul(PER_SUSPECT)
            .saturating_add(PER_CALL);
        Self::price(config).saturating_mul(messages)
    }

    /// How often each of a few callers may ask about so many suspects, whatever the level is: their calls
    /// together cost each silo twice the quiet load.
    pub(crate) fn shared(config: &Config, suspects: usize, callers: usize) -> Duration {
        Self::cost(config, suspects).saturating_mul(count(callers)) / 4
    }

    /// Until when the next call has to wait; in the past if it need not. It is about so many suspects
    /// and asks so many of all silos.
    pub(crate) fn free_at(
        &self,
        config: &Config,
        suspects: usize,
        asked: usize,
        all: usize,
    ) -> MonoTime {
        // What it costs each silo, on average.
        let cost = Self::cost(config, suspects).saturating_mul(count(asked)) / count(all).max(1);
        let level = MOST.saturating_sub(cost.saturating_mul(ROOM)).max(LOW);
        self.until.minus(if asked < all { level } else { LOW })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_takes_on_the_fewer_suspects_the_more_the_last_ones_cost() {
        let (config, now) = (Config::default(), MonoTime::ZERO);
        let mut expense = Expense::default();
        let mut affords = Vec::new();
        for _ in 0..1_000 {
            affords.push(expense.affords(now, &config));
            expense.add_in_vain(now, &config);
        }
        assert_eq!(affords[0], usize::MAX);
        assert_eq!(affords.last(), Some(&1), "it is never without one");
        assert!(affords.is_sorted_by(|a, b| a >= b));
        // What is taken on keeps the level low.
        let limited = affords.iter().position(|more| *more < usize::MAX).unwrap();
        let cost = Expense::price(&config) * (affords[limited] as u32 * PER_SUSPECT);
        let level = Expense::price(&config) * PER_SUSPECT * limited as u32;
        assert!(
            level > CALM && level + cost <= LOW / 2,
            "{level:?} {cost:?}"
        );
    }

    #[test]
    fn a_call_waits_the_longer_the_more_it_costs() {
        let (config, now) = (Config::default(), MonoTime::ZERO);
        let mut expense = Expense::default();
        for _ in 0..1_000 {
            expense.add(now, &config);
        }
        let wait = |suspects, asked, all| expense.free_at(&config, suspects, asked, all).since(now);
        assert_eq!(wait(1, 30, 30), MOST - LOW, "until the level is low");
        assert_eq!(wait(90, 512, 1_000), MOST - LOW);
        assert!(wait(1, 512, 1_000) < Duration::from_secs(8));
        assert!(wait(20, 512, 10_000) < wait(20, 512, 1_000));
    }

    #[test]
    fn the_calls_of_a_few_cost_twice_the_quiet_load_at_most() {
        let config = Config::default();
        for (suspects, callers) in [(1, 2), (10, 3), (50, 8)] {
            let messages = (PER_CALL + PER_SUSPECT * suspects) * callers;
            let seconds = Expense::shared(&config, suspects as usize, callers as usize);
            let each = f64::from(messages) / seconds.as_secs_f64();
            // Half of the quiet load pays for one message in its price.
            let quiet = 2.0 / Expense::price(&config).as_secs_f64();
            assert!((each / quiet - 2.0).abs() < 1e-6, "{each} {quiet}");
        }
    }
}
