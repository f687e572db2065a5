//! Members whose announced views the table contradicted: for a while, what they announce is only a
//! reason to read the table. Invariant P16.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{MonoTime, SiloAddress};

/// How long a member is not believed after a contradiction.
const A_WHILE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct Distrust(BTreeMap<SiloAddress, MonoTime>);

impl Distrust {
    /// Records a contradiction. Only members announce views, so their number bounds this.
    pub(crate) fn begin(&mut self, silo: SiloAddress, now: MonoTime) {
        self.0.retain(|_, since| now.since(*since) < A_WHILE);
        self.0.insert(silo, now);
    }

    /// Whether this silo is not believed now.
    pub(crate) fn has(&self, silo: &SiloAddress, now: MonoTime) -> bool {
        self.0
            .get(silo)
            .is_some_and(|since| now.since(*since) < A_WHILE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distrust_ends_after_a_minute() {
        let silo = |port| SiloAddress::new([10, 0, 0, 1].into(), port, 1);
        let at = |s| MonoTime::ZERO + Duration::from_secs(s);
        let mut distrust = Distrust::default();
        distrust.begin(silo(1), at(10));
        assert!(distrust.has(&silo(1), at(69)) && !distrust.has(&silo(2), at(69)));
        assert!(!distrust.has(&silo(1), at(70)));
        distrust.begin(silo(2), at(70));
        assert_eq!(distrust.0.len(), 1);
    }
}
