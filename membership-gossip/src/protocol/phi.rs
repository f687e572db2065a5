//! How much it is doubted that a member lives: phi accrual (Hayashibara et al., 2004), with the
//! logistic approximation of the normal tail.

use std::time::Duration;

use membership_core::MonoTime;
use membership_core::protocol::SampleWindow;

use crate::Config;

/// The doubt about one member.
#[derive(Clone, Debug)]
pub struct Detector {
    kind: Kind,
    /// Since when silence counts.
    last: MonoTime,
    /// Whether it ever answered.
    heard: bool,
    /// Whether it has answered others since, and not this member.
    vouched: bool,
}

#[derive(Clone, Debug)]
enum Kind {
    Phi {
        intervals: SampleWindow,
        pause: f64,
        least_deviation: f64,
        threshold: f64,
    },
    /// A fixed time, between data centres.
    Deadline(Duration),
}

impl Detector {
    /// A detector for a member to which the first heartbeat is sent at `now`. If it never answers,
    /// silence counts from [`Config::expected_response_after`] later.
    #[must_use]
    pub fn phi(config: &Config, now: MonoTime) -> Self {
        let mean = config.heartbeat_interval.as_secs_f64();
        let mut intervals = SampleWindow::new(config.max_sample_size as usize);
        // A deviation of a quarter, so that the first intervals surprise nobody.
        intervals.add(mean * 0.75);
        intervals.add(mean * 1.25);
        let kind = Kind::Phi {
            intervals,
            pause: config.acceptable_heartbeat_pause.as_secs_f64(),
            least_deviation: config.min_std_deviation.as_secs_f64(),
            threshold: config.phi_threshold,
        };
        Self {
            kind,
            last: now + config.expected_response_after,
            heard: false,
            vouched: false,
        }
    }

    /// A detector that waits for a fixed time.
    #[must_use]
    pub fn deadline(after: Duration, now: MonoTime) -> Self {
        Self {
            kind: Kind::Deadline(after),
            last: now,
            heard: false,
            vouched: false,
        }
    }

    /// A sign of life.
    pub fn heartbeat(&mut self, now: MonoTime) {
        // The interval that ends an outage is no usual one.
        let usual = self.heard && self.is_available(now);
        if let Kind::Phi { intervals, .. } = &mut self.kind
            && usual
        {
            intervals.add(now.since(self.last).as_secs_f64());
        }
        self.last = now;
        self.heard = true;
        self.vouched = false;
    }

    /// Others say that it answers them: it lives, and the link to it is broken until it answers here.
    pub fn vouch(&mut self, now: MonoTime) {
        self.forgive(now);
        self.vouched = true;
    }

    /// Whether only others have heard of it lately.
    #[must_use]
    pub const fn is_vouched(&self) -> bool {
        self.vouched
    }

    /// A sign of life by another way, or none because this process did not listen: silence counts
    /// from now, and the interval says nothing.
    pub fn forgive(&mut self, now: MonoTime) {
        self.last = self.last.max(now);
    }

    /// The level of doubt at `now`; infinite for a fixed time that has passed.
    #[must_use]
    pub fn level(&self, now: MonoTime) -> f64 {
        let silence = now.since(self.last).as_secs_f64();
        match &self.kind {
            Kind::Deadline(after) if now.since(self.last) > *after => f64::INFINITY,
            Kind::Deadline(_) => 0.0,
            Kind::Phi {
                intervals,
                pause,
                least_deviation,
                ..
            } => {
                let deviation = intervals.deviation().max(*least_deviation);
                phi(silence, intervals.mean() + pause, deviation)
            }
        }
    }

    /// Whether the level is below the threshold.
    #[must_use]
    pub fn is_available(&self, now: MonoTime) -> bool {
        match &self.kind {
            Kind::Deadline(_) => self.level(now) < 1.0,
            Kind::Phi { threshold, .. } => self.level(now) < *threshold,
        }
    }
}

/// −log10 of the probability that an answer comes later than `silence`, for answers that are normally
/// distributed.
fn phi(silence: f64, mean: f64, deviation: f64) -> f64 {
    let y = (silence - mean) / deviation;
    let e = (-y * (1.5976 + 0.070566 * y * y)).exp();
    if silence > mean {
        -(e / (1.0 + e)).log10()
    } else {
        -(1.0 - 1.0 / (1.0 + e)).log10()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Preset;

    fn at(seconds: f64) -> MonoTime {
        MonoTime::ZERO + Duration::from_secs_f64(seconds)
    }

    /// The first time after the last answer at which the member is doubted, in seconds.
    fn detected(config: &Config, answers: u32) -> f64 {
        let mut detector = Detector::phi(config, at(0.0));
        for i in 0..answers {
            detector.heartbeat(at(f64::from(i)));
        }
        let last = f64::from(answers.saturating_sub(1));
        let mut after = 0.0;
        while detector.is_available(at(last + after)) {
            after += 0.01;
        }
        after
    }

    #[test]
    fn doubt_grows_with_silence_at_the_known_times() {
        let config = Config::preset(Preset::Akka);
        assert!((detected(&config, 1_000) - 4.5).abs() < 0.1);
        assert!((detected(&config, 1) - 5.3).abs() < 0.1, "the first one");
        let mut cloud = config;
        cloud.phi_threshold = 12.0;
        let more = detected(&cloud, 1_000);
        assert!((more - 4.63).abs() < 0.1, "{more}");
    }

    #[test]
    fn who_never_answers_is_noticed() {
        let config = Config::preset(Preset::Akka);
        let after = detected(&config, 0);
        assert!((6.0..7.0).contains(&after), "{after}");
    }

    #[test]
    fn an_outage_does_not_teach_patience() {
        let config = Config::preset(Preset::Lan);
        let mut detector = Detector::phi(&config, at(0.0));
        for i in 0..100 {
            detector.heartbeat(at(f64::from(i)));
        }
        detector.heartbeat(at(200.0));
        assert!(!detector.is_available(at(204.6)));
    }

    #[test]
    fn a_deadline_is_one() {
        let mut detector = Detector::deadline(Duration::from_secs(13), at(0.0));
        detector.heartbeat(at(1.0));
        assert!(detector.is_available(at(14.0)) && !detector.is_available(at(14.1)));
    }
}
