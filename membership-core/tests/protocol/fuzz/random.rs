//! Random values, many of them at the edge of what is allowed.

use super::*;

pub(super) struct SeededRng(pub(super) u64);

impl SeededRng {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    pub(super) fn in_a_hundred(&mut self, n: u64) -> bool {
        self.below(100) < n
    }
    pub(super) fn number(&mut self) -> u64 {
        [0, 1, 2, 1000, MAX - 1, MAX, MAX + 1, u64::MAX][self.below(8) as usize]
    }
    pub(super) fn duration(&mut self) -> Duration {
        let some = [
            Duration::ZERO,
            Duration::from_nanos(1),
            ms(1),
            secs(1),
            secs(100),
            secs(1 << 40),
            Duration::MAX,
        ];
        some[self.below(some.len() as u64) as usize]
    }
    pub(super) fn wall(&mut self) -> WallTime {
        [
            WallTime::default(),
            NOON,
            NOON.plus(secs(3600)),
            WallTime::from_millis(u64::MAX),
        ][self.below(4) as usize]
    }
    pub(super) fn silo(&mut self) -> SiloAddress {
        let n = u8::try_from(self.below(7)).unwrap();
        let epoch = [1, 1, 1, 1, 2, 1_795_000_000_000, MAX, 0][self.below(8) as usize];
        silo(n).with_epoch(epoch)
    }
    pub(super) fn settings(&mut self) -> SharedSettings {
        let mut settings = SharedSettings::default();
        settings.i_am_alive_period = self.duration();
        settings.num_missed_i_am_alive_limit = self.number() as u32;
        settings.failure_window = self.duration();
        settings.num_votes_for_death_declaration = self.number() as u32;
        settings.death_vote_expiration = self.duration();
        settings.max_join_attempt_time = self.duration();
        settings
    }
    pub(super) fn suspicion(&mut self) -> Suspicion {
        let mut v = vote(1, self.wall());
        v.accuser = self.silo();
        v.evidence.via = self.in_a_hundred(30).then(|| self.silo());
        v.evidence.timeout_ms = self.number();
        v.evidence.misses = self.number() as u32;
        if self.in_a_hundred(20) {
            v.reason = SuspicionReason::Stuck;
        }
        v
    }
    pub(super) fn entry(&mut self, silo: SiloAddress) -> MembershipEntry {
        let status = SiloStatus::ALL[1 + self.below(5) as usize];
        let mut e = entry(silo, status);
        e.active_since = self.in_a_hundred(80).then(|| self.number());
        e.suspicions = (0..self.below(3)).map(|_| self.suspicion()).collect();
        e.start_time = self.wall();
        e
    }
    /// Usually a failure: with other answers there would be no vote.
    pub(super) fn finding(&mut self) -> Finding {
        if self.in_a_hundred(20) {
            return [Finding::Reached, Finding::Unknown][self.below(2) as usize];
        }
        let consent = Consent {
            misses: self.number() as u32,
            timeout_ms: self.number(),
            last_answer_ms: self.in_a_hundred(50).then(|| self.number()),
        };
        Finding::Failed {
            silent_ms: self.number(),
            heard_ms: self.in_a_hundred(50).then(|| self.number()),
            refused: self.in_a_hundred(30),
            consent: self.in_a_hundred(70).then_some(consent),
        }
    }
    pub(super) fn own_change(&mut self) -> OwnChange {
        let silo = self.silo();
        match self.below(4) {
            0 => OwnChange::Join(Row::encode(self.entry(silo))),
            1 => OwnChange::BecomeActive {
                contacted: vec![(silo, self.number())],
            },
            2 => OwnChange::BeginShutdown {
                fast: self.in_a_hundred(50),
            },
            _ => OwnChange::Leave,
        }
    }
    pub(super) fn standing(&mut self) -> Standing {
        match self.below(5) {
            0 => Standing::Waiting,
            1 => Standing::Written {
                version: self.number(),
            },
            2 => Standing::Moot,
            3 => Standing::Refused,
            _ => Standing::Elsewhere,
        }
    }
    pub(super) fn error(&mut self) -> TableError {
        use TableErrorKind as K;
        let usual = [K::Unavailable, K::Busy, K::OutcomeUnknown];
        let kind = if self.in_a_hundred(96) {
            usual[self.below(3) as usize]
        } else {
            K::ALL[self.below(15) as usize]
        };
        TableError::new(kind, Operation::Read, "fuzz", "it lies")
    }
}
