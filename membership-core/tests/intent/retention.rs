//! Which rows the leader removes.

use super::*;
use membership_core::intent::defunct;

const DAY: Duration = Duration::from_secs(24 * 3600);

fn minutes(n: u64) -> Duration {
    Duration::from_secs(60 * n)
}

fn gone(entries: impl IntoIterator<Item = MembershipEntry>, config: &Config) -> Vec<u16> {
    defunct(&table(entries), NOW.wall, config, |_| Duration::ZERO)
        .iter()
        .map(SiloAddress::port)
        .collect()
}

#[test]
fn rows_of_silos_that_left_expire_in_minutes_others_in_days() {
    use CauseOfDeath::{Evicted, Left, Stuck, Superseded, Voted};
    let t = [
        died(silo(1), Left, minutes(10)),
        died(silo(2), Left, minutes(9)),
        died(silo(3), Superseded, minutes(10)),
        died(silo(4), Voted, DAY * 7),
        died(silo(5), Voted, DAY * 6),
        died(
            silo(6),
            Evicted {
                by: String::new(),
                reason: String::new(),
            },
            DAY * 8,
        ),
        died(silo(7), Stuck, DAY),
        entry(silo(8), SiloStatus::Active),
        died(silo(9), Left, Duration::ZERO),
    ];
    assert_eq!(gone(t, &Config::default()), [1, 3, 4, 6]);
}

#[test]
fn only_the_newest_defunct_rows_by_version_are_kept() {
    let dead = |port: u16, version: u64, ago| {
        let mut e = died(silo(port), CauseOfDeath::Voted, ago);
        e.death.as_mut().unwrap().version = version;
        e
    };
    let mut config = Config::default();
    config.max_defunct_silo_entries = 2;
    let t = [
        dead(1, 5, minutes(30)),
        dead(2, 9, minutes(90)),
        dead(3, 7, minutes(5)),
        dead(4, 4, minutes(1)),
        died(silo(5), CauseOfDeath::Left, minutes(5)),
    ];
    // The fourth row also exceeds the maximum, but its silo died just now.
    assert_eq!(gone(t, &config), [1]);
    let mut none = Config::default();
    none.max_defunct_silo_entries = 0;
    assert_eq!(
        gone((1..=30).map(|p| dead(p, u64::from(p), minutes(3))), &none).len(),
        30
    );
    assert_eq!(
        gone(
            (1..=30).map(|p| dead(p, u64::from(p), minutes(3))),
            &Config::default()
        ),
        [1, 2, 3, 4, 5]
    );
}

#[test]
fn rows_of_recent_deaths_stay_and_a_future_death_is_recent() {
    let mut config = Config::default();
    config.max_defunct_silo_entries = 0;
    config.left_silo_expiration = Duration::ZERO;
    let t = [
        died(silo(1), CauseOfDeath::Left, minutes(2)),
        died(silo(2), CauseOfDeath::Voted, minutes(2)),
        died(
            silo(3),
            CauseOfDeath::Voted,
            minutes(2) + Duration::from_millis(1),
        ),
    ];
    assert_eq!(gone(t, &config), [3]);
    let mut future = died(silo(1), CauseOfDeath::Left, Duration::ZERO);
    future.death.as_mut().unwrap().at = NOW.wall.plus(DAY * 30);
    assert_eq!(gone([future], &config), Vec::<u16>::new());
}

#[test]
fn a_row_stays_while_a_vote_could_count() {
    let mut config = Config::default();
    config.max_defunct_silo_entries = 0;
    let mut t = table([
        died(silo(1), CauseOfDeath::Voted, minutes(9)),
        died(silo(2), CauseOfDeath::Left, minutes(11)),
    ]);
    let mut version_row = (*t.version_row).clone();
    version_row.settings.death_vote_expiration = minutes(10);
    t.version_row = version_row.into();
    assert_eq!(
        defunct(&t, NOW.wall, &config, |_| Duration::ZERO),
        [silo(2)]
    );
}

#[test]
fn a_row_stays_until_older_rows_at_its_address_are_removed() {
    use CauseOfDeath::{Superseded, Voted};
    let at = |epoch: u64| SiloAddress::new(silo(1).ip(), 1, epoch);
    let removed = |entries: Vec<MembershipEntry>| {
        let t = table(entries);
        let all: Vec<SiloAddress> = t
            .rows
            .entries()
            .filter(|e| e.status == SiloStatus::Dead)
            .map(|e| e.address)
            .collect();
        let intent = Intent::new(IntentId::new(1), None, Action::RemoveDefunct { silos: all });
        let limits = TableLimits::new(10, 65_536, 1 << 20, 5_000);
        let applied = apply(
            &t,
            &Observed::default(),
            &[intent],
            NOW,
            &Config::default(),
            &limits,
        );
        let due = defunct(&t, NOW.wall, &Config::default(), |_| Duration::ZERO);
        (
            due.iter().map(SiloAddress::epoch).collect::<Vec<_>>(),
            applied.removes.len(),
        )
    };
    // The writer of the older row's death had a fast clock: the younger silo seems to have died
    // earlier.
    let (due, _) = removed(vec![
        died(at(5), Superseded, minutes(1)),
        died(at(6), Superseded, minutes(20)),
        died(silo(2), Voted, DAY * 8),
    ]);
    assert_eq!(due, [silo(2).epoch()]);
    let (due, _) = removed(vec![
        died(at(5), Superseded, minutes(20)),
        died(at(6), Superseded, minutes(20)),
        died(at(7), Superseded, minutes(1)),
    ]);
    assert_eq!(due, [5, 6]);
    // For any request of the caller: an older silo that is not Dead stays, and so do the younger
    // ones.
    let (_, taken) = removed(vec![
        entry(at(5), SiloStatus::Joining),
        died(at(6), Superseded, minutes(20)),
        died(silo(2), Voted, DAY * 8),
    ]);
    assert_eq!(taken, 1);
}

#[test]
fn a_death_seen_for_long_is_old_for_any_clock() {
    let mut future = died(silo(1), CauseOfDeath::Left, Duration::ZERO);
    future.death.as_mut().unwrap().at = NOW.wall.plus(DAY * 365);
    let t = table([future]);
    let due = |seen: Duration| defunct(&t, NOW.wall, &Config::default(), |_| seen).len();
    assert_eq!(
        (due(Duration::ZERO), due(minutes(9)), due(minutes(10))),
        (0, 0, 1)
    );
}
