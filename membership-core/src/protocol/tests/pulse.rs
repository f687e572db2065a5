//! Where the leader's heartbeat is the pulse of the cluster, the others write theirs rarely.

use super::super::heartbeat_writer::HeartbeatWriter;
use super::super::machine::Protocol;
use super::super::pulse::Pulse;
use super::super::timers::Timer;
use super::*;
use crate::hooks::ProtocolVariant;
use crate::{Heartbeat, HeartbeatWrite, Heartbeats};

/// Six silos write one heartbeat in five minutes each.
const SPACING: Duration = Duration::from_secs(50);
/// The leader.
const LEADER: u8 = 2;

fn entries(all: u8) -> Vec<MembershipEntry> {
    let mut entries = actives(1..=all);
    for entry in &mut entries {
        let leads = entry.address == silo(LEADER);
        entry.active_since = Some(if leads { 1 } else { 40 });
    }
    entries
}

/// Why others may miss a silo, and how that begins.
type Spoil = (&'static str, fn(&mut Quiet));

/// A silo of six, of which it probes 3 and 4.
struct Quiet(Protocol);

impl Quiet {
    fn new() -> Self {
        let variant = ProtocolVariant {
            heartbeat_spacing: Some(SPACING),
            ..ProtocolVariant::SCRIBE
        };
        let mut it = Protocol::with_variant(setup(), variant);
        it.ctx.now = ctx().now;
        it.ctx.me = silo(1);
        it.ctx.status = SiloStatus::Active;
        believe(&mut it.ctx, snapshot(50, entries(6)));
        it.prober.set_targets(&mut it.ctx, &[3, 4].map(silo).into());
        let mut it = Self(it);
        it.looks(7);
        it.pass(1, &[]);
        it.looks(8);
        it
    }

    /// A look shows the leader's heartbeat.
    fn looks(&mut self, counter: u64) {
        let now = self.0.ctx.mono();
        self.0.pulse.on_look(now, silo(LEADER), counter);
    }

    /// Time passes in which it is probed, and all answer that are not in `silent`.
    fn pass(&mut self, seconds: u64, silent: &[u8]) {
        for _ in 0..seconds {
            pass_time(&mut self.0.ctx, secs(1));
            for n in [3, 4] {
                if let Some(due) = self.0.ctx.timers.at(Timer::Probe(silo(n)))
                    && due <= self.0.ctx.mono()
                {
                    self.0.prober.on_timer(&mut self.0.ctx, silo(n), 1);
                }
                if !silent.contains(&n) {
                    self.0
                        .prober
                        .on_answer(&self.0.ctx, silo(n), self.0.ctx.now.mono);
                }
            }
            self.0.monitor.probe_received(self.0.ctx.now.mono);
        }
        self.0.ctx.out.clear();
    }

    /// When the next heartbeat comes after one that is written now.
    fn next(&mut self) -> Duration {
        self.0.heartbeat_writer = HeartbeatWriter::default();
        self.0.pace_heartbeats();
        self.0.heartbeat_writer.on_timer(&mut self.0.ctx);
        let wrote = |e: &Effect| {
            matches!(
                e,
                Effect::WriteHeartbeat {
                    write: HeartbeatWrite::Silo { .. },
                    ..
                }
            )
        };
        assert!(self.0.ctx.out.iter().any(wrote));
        self.0.ctx.out.clear();
        self.wait()
    }

    fn wait(&self) -> Duration {
        let due = self.0.ctx.timers.at(Timer::Heartbeat).unwrap();
        due.since(self.0.ctx.mono())
    }

    fn shows(&mut self, version: u64, entries: Vec<MembershipEntry>) {
        believe(&mut self.0.ctx, snapshot(version, entries));
    }
}

#[test]
fn a_silo_that_nobody_can_miss_writes_rarely() {
    let mut it = Quiet::new();
    let first = it.next();
    assert!(
        (secs(150)..=secs(300)).contains(&first),
        "they spread: {first:?}"
    );
    let usual = it.0.ctx.heartbeat_period();
    it.0.ctx.variant.heartbeat_spacing = Some(usual / 6);
    assert_eq!(it.next(), usual, "too few have no pulse");
    it.0.ctx.variant.heartbeat_spacing = Some(usual);
    let next = it.next();
    assert!(next > usual && next <= usual * 6, "{next:?}");
    it.0.ctx.variant.scribe = false;
    assert_eq!(it.next(), usual, "without the setting");
}

#[test]
fn whatever_may_make_others_miss_a_silo_makes_it_beat_as_usual() {
    let spoil: [Spoil; 8] = [
        ("a silo that it probes is silent", |it| it.pass(8, &[3])),
        ("nobody probes it", |it| {
            it.pass(1, &[]);
            pass_time(&mut it.0.ctx, secs(6));
            for n in [3, 4] {
                it.0.prober.on_answer(&it.0.ctx, silo(n), it.0.ctx.now.mono);
            }
        }),
        ("it is accused", |it| {
            let mut entries = entries(6);
            entries[0].suspicions = vec![vote(3, NOON)];
            it.shows(51, entries);
        }),
        ("the table fails", |it| {
            it.0.ctx.table.failing_since = Some(it.0.ctx.mono());
        }),
        ("it is suspended", |it| it.0.ctx.suspended = true),
        ("it leads", |it| {
            let mut entries = entries(6);
            entries[1].status = SiloStatus::ShuttingDown;
            entries[0].active_since = Some(2);
            it.shows(51, entries);
        }),
        ("another one leads, and does not write", |it| {
            let mut entries = entries(6);
            entries[1].status = SiloStatus::ShuttingDown;
            entries[5].active_since = Some(2);
            it.shows(51, entries);
            assert!(it.0.may_beat_rarely(), "it has its time");
            it.pass(301, &[]);
        }),
        ("the pulse has stopped", |it| {
            for _ in 0..6 {
                it.pass(60, &[]);
                it.looks(8);
            }
        }),
    ];
    for (why, spoil) in spoil {
        let mut it = Quiet::new();
        assert!(it.0.may_beat_rarely());
        spoil(&mut it);
        assert!(!it.0.may_beat_rarely(), "{why}");
    }
}

#[test]
fn a_silo_that_stops_to_write_rarely_writes_soon() {
    let mut it = Quiet::new();
    assert!(it.next() > secs(60));
    it.0.ctx.table.failing_since = Some(it.0.ctx.mono());
    it.0.pace_heartbeats();
    let soon = it.wait();
    assert!(soon <= it.0.ctx.heartbeat_period() / 2, "{soon:?}");
    it.0.ctx.table.failing_since = None;
    it.0.pace_heartbeats();
    assert_eq!(it.wait(), soon, "that one is not put off");
}

#[test]
fn the_looks_are_at_the_leader_and_at_this_silo_in_turn() {
    let mut it = Quiet::new();
    let turn = |it: &mut Quiet| it.0.pulse.turn(&it.0.ctx);
    let turns: Vec<SiloAddress> = (0..4).map(|_| turn(&mut it)).collect();
    assert_eq!(turns, [LEADER, 1, LEADER, 1].map(silo));
    it.0.ctx.variant.heartbeat_spacing = None;
    assert_eq!([turn(&mut it), turn(&mut it)], [silo(1), silo(1)]);
}

/// Reads in which the heartbeats of 5 and 6 stand still, for `seconds`. Returns who is stale.
fn stale_after(it: &mut Quiet, seconds: u64) -> Vec<SiloAddress> {
    for second in 0..=seconds {
        pass_time(&mut it.0.ctx, secs(u64::from(second > 0)));
        let beat = |counter| Heartbeat { counter, at: NOON };
        let moving = it.0.ctx.mono().since(MonoTime::ZERO).as_secs();
        let all = (1..=6).map(|n| (silo(n), beat(if n > 4 { 9 } else { moving })));
        let beats = Heartbeats::new(all.collect(), None);
        let (now, alive) = (it.0.ctx.mono(), it.0.ctx.members.alive.clone());
        let period = it.0.ctx.heartbeat_period();
        it.0.staleness.on_read(now, now, &beats, &alive, period);
        it.0.judge_staleness();
    }
    it.0.stale.iter().copied().collect()
}

#[test]
fn where_there_is_a_pulse_only_an_accused_silo_becomes_stale() {
    let mut it = Quiet::new();
    assert_eq!(stale_after(&mut it, 90), []);
    let mut accused = entries(6);
    accused[5].suspicions = vec![vote(3, it.0.ctx.now.wall)];
    it.shows(51, accused);
    assert_eq!(
        stale_after(&mut it, 29),
        [],
        "it may not have learned of it"
    );
    assert_eq!(stale_after(&mut it, 1), [silo(6)]);
    let mut it = Quiet::new();
    assert_eq!(stale_after(&mut it, 899), [], "rare heartbeats");
    assert_eq!(
        stale_after(&mut it, 2),
        [5, 6].map(silo),
        "three are missing"
    );
    let mut it = Quiet::new();
    it.0.ctx.variant.heartbeat_spacing = None;
    assert_eq!(stale_after(&mut it, 30), [5, 6].map(silo));
}

#[test]
fn when_the_pulse_is_gone_what_stood_still_until_then_says_nothing() {
    let mut it = Quiet::new();
    it.0.ctx.variant.heartbeat_spacing = Some(it.0.ctx.heartbeat_period() / 4);
    it.0.pulse = Pulse::default();
    assert_eq!(stale_after(&mut it, 44), []);
    let mut fewer = entries(6);
    for entry in &mut fewer[2..4] {
        entry.status = SiloStatus::ShuttingDown;
    }
    it.shows(51, fewer);
    assert_eq!(stale_after(&mut it, 29), []);
    assert_eq!(stale_after(&mut it, 2), [5, 6].map(silo));
}

#[test]
fn an_accusation_lasts_over_a_short_break_and_not_over_a_long_one() {
    for (pause, counts) in [(9, true), (11, false)] {
        let mut it = Quiet::new();
        let accuse = |it: &mut Quiet, version, is: bool| {
            let mut entries = entries(6);
            if is {
                entries[5].suspicions = vec![vote(3, it.0.ctx.now.wall)];
            }
            it.shows(version, entries);
        };
        accuse(&mut it, 51, true);
        assert_eq!(stale_after(&mut it, 20), []);
        accuse(&mut it, 52, false);
        assert_eq!(stale_after(&mut it, pause), [], "nobody accuses it now");
        accuse(&mut it, 53, true);
        let is_stale = !stale_after(&mut it, 3).is_empty();
        assert_eq!(is_stale, counts, "{pause}");
    }
}
