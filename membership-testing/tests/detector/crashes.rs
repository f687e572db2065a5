//! Processes and machines crash, one or many at one moment. All survivors learn of it soon, in few
//! views.

use std::error::Error;
use std::time::Duration;

use crate::stage::{MS, Outcome, S, Stage, for_each, for_seeds, require, times};
use membership_core::protocol::Input;
use membership_testing::{ProcessId, UnknownOutcome};

/// How the victims end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Crash {
    /// The processes only: their machines tell those who were connected, and refuse others.
    Processes,
    /// Their machines too: nobody is told anything.
    Machines,
}

/// A cluster of which some silos have crashed at one moment.
struct Crashed {
    stage: Stage,
    victims: Vec<ProcessId>,
    survivors: Vec<ProcessId>,
}

impl Crashed {
    fn of(seed: u64, silos: usize, victims: usize, how: Crash) -> Result<Self, Box<dyn Error>> {
        let mut stage = Stage::set(seed, silos)?;
        let victims = stage.draw(victims);
        // At any time between two probes.
        let time = stage.cluster.rng().between(S(0), S(10));
        stage.cluster.run_for(time)?;
        for victim in &victims {
            match how {
                Crash::Processes => stage.cluster.kill(*victim),
                Crash::Machines => stage.cluster.crash_machine(*victim),
            }
        }
        let survivors = stage.cluster.running();
        Ok(Self {
            stage,
            victims,
            survivors,
        })
    }

    /// How long it takes until every survivor publishes exactly the survivors; at most five minutes.
    fn until_known(&mut self) -> Result<Duration, Box<dyn Error>> {
        let known = self.stage.until_settled(&self.survivors, S(300))?;
        let all = &self.survivors;
        self.stage.all_live(all)?;
        known.ok_or_else(|| "not all survivors know after 5 minutes".into())
    }

    /// The commits in which victims left, each with how many.
    fn views(&self) -> Vec<usize> {
        let deaths = self.stage.deaths_since(S(0));
        deaths.iter().map(Vec::len).collect()
    }
}

/// Many of a hundred machines crash at one moment.
fn many_machines_crash(seed: u64, victims: usize) -> Outcome {
    let mut crashed = Crashed::of(seed, 100, victims, Crash::Machines)?;
    let took = crashed.until_known()?;
    let views = crashed.views();
    println!("seed {seed}: {victims} of 100: known after {took:.1?}, in views of {views:?}");
    require!(
        views.iter().sum::<usize>() == crashed.victims.len(),
        "{victims} crashed, but {views:?} left"
    );
    require!(took <= S(30), "the survivors knew only after {took:.1?}");
    require!(views.len() <= 5, "the victims left in views of {views:?}");
    crashed.stage.ends_well_for(&crashed.survivors)
}

#[test]
fn half_of_all_machines_crash_at_one_moment() {
    for_each(&[50], 0..5, many_machines_crash);
}

#[test]
fn most_machines_crash_at_one_moment() {
    for_each(&[80], 0..9, many_machines_crash);
}

/// Messages were lost for two minutes, so that suspects of many calls turned out to be there: no reason to
/// take few on where two in five crash. (With one in two, each survivor must answer the first call.)
fn many_crash_after_messages_were_lost(seed: u64, lost: f64) -> Outcome {
    let mut stage = Stage::set(seed, 100)?;
    stage.cluster.message_loss(lost);
    stage.cluster.run_for(S(120))?;
    stage.cluster.message_loss(0.0);
    for victim in stage.draw(40) {
        stage.cluster.crash_machine(victim);
    }
    let survivors = stage.cluster.running();
    let known = stage.until_settled(&survivors, S(300))?;
    let deaths = stage.deaths_since(S(0));
    let views: Vec<usize> = deaths.iter().map(Vec::len).collect();
    println!("seed {seed}: {lost} lost: known after {known:.1?}, views {views:?}");
    require!(
        known.is_some_and(|took| took <= S(30)) && views.len() <= 5,
        "{lost} of all messages were lost: known after {known:.1?}, views {views:?}"
    );
    stage.ends_well_for(&survivors)
}

#[test]
fn two_in_five_machines_crash_after_messages_were_lost() {
    for_each(&[0.1, 0.2], 0..5, many_crash_after_messages_were_lost);
}

#[test]
fn a_tenth_of_all_machines_crash_at_one_moment() {
    for_each(&[10], 0..10, many_machines_crash);
}

/// One process of five crashes, and its machine says so.
fn a_process_crashes(seed: u64) -> Outcome {
    let mut crashed = Crashed::of(seed, 5, 1, Crash::Processes)?;
    let took = crashed.until_known()?;
    println!("seed {seed}: known after {took:.2?}");
    require!(took <= S(2), "the survivors knew only after {took:.1?}");
    crashed.stage.ends_well_for(&crashed.survivors)
}

#[test]
fn all_know_of_a_crashed_process_within_two_seconds() {
    for_seeds(0..10, a_process_crashes);
}

/// One machine crashes, and nobody is told.
fn a_machine_crashes(seed: u64, silos: usize) -> Result<Duration, Box<dyn Error>> {
    Crashed::of(seed, silos, 1, Crash::Machines)?.until_known()
}

/// All survivors know of most crashes within 6 s, and of nearly all within 10 s.
fn all_know_soon_of_a_crashed_machine(silos: usize) {
    let what = format!("a machine of {silos} crashes");
    let (median, p99) = times(&what, 0..50, |seed| a_machine_crashes(seed, silos));
    assert!(
        median <= S(6) && p99 <= S(10),
        "{what}: {median:.1?}, {p99:.1?}"
    );
}

/// Silos start and leave all the time, so that most views are only announced when a machine crashes.
/// The table answers within this time.
fn a_machine_crashes_in_a_deploy(seed: u64, (silos, every, slow): (usize, u64, u64)) -> Outcome {
    let mut stage = Stage::set(seed, silos)?;
    stage.cluster.slow_table(MS(slow / 4), MS(slow));
    let gone = stage.draw(1)[0];
    let (mut young, mut crashed) = (std::collections::VecDeque::new(), None);
    for change in 0.. {
        let now = stage.cluster.now();
        if change == 100 {
            crashed = Some(now);
            stage.cluster.crash_machine(gone);
        }
        if crashed.is_some_and(|at| now - at > S(60)) || (change > 100 && stage.is_dead(gone)) {
            break;
        }
        if change % 2 == 0 || young.len() < 4 {
            young.extend(stage.cluster.start(1));
        } else if let Some(oldest) = young.pop_front() {
            stage.cluster.leave(oldest);
        }
        stage.cluster.run_for(MS(every))?;
    }
    let took = crashed.map_or(S(0), |at| stage.cluster.now() - at);
    println!("seed {seed}: {silos}, a change every {every} ms: noticed after {took:.1?}");
    require!(took <= S(15), "the crash was noticed after {took:.1?}");
    let mut others = stage.silos.clone();
    others.retain(|id| *id != gone);
    stage.ends_well_for(&others)
}

#[test]
fn a_crash_amid_many_changes_is_noticed() {
    let cases = [
        (10, 200, 20),
        (10, 200, 300),
        (20, 100, 100),
        (20, 300, 600),
    ];
    for_each(&cases, 0..5, a_machine_crashes_in_a_deploy);
}

#[test]
fn four_survivors_know_soon_of_a_crashed_machine() {
    all_know_soon_of_a_crashed_machine(5);
}

#[test]
fn twenty_nine_survivors_know_soon_of_a_crashed_machine() {
    all_know_soon_of_a_crashed_machine(30);
}

/// A part of all machines crash while the table answers reads and loses every commit, for ten minutes.
/// Each call finds the same, and its votes are not written: that must not become a flood. Once the
/// table takes commits again, all that have crashed are removed.
fn many_crash_while_no_commit_lands(seed: u64, (silos, crashes): (usize, usize)) -> Outcome {
    let mut stage = Stage::set(seed, silos)?;
    let gone = stage.draw(crashes);
    let lost = Some(UnknownOutcome::NotApplied);
    stage.cluster.unknown_outcomes_of(lost, 1.0);
    for silo in &gone {
        stage.cluster.crash_machine(*silo);
    }
    let mut others = stage.silos.clone();
    others.retain(|id| !gone.contains(id));
    let mut most: f64 = 0.0;
    for _ in 0..10 {
        most = most.max(stage.load(&others, S(60))?);
    }
    stage.cluster.unknown_outcomes(0.0);
    let took = stage.until_settled(&others, S(180))?;
    println!(
        "seed {seed}: {crashes} of {silos}: at most {most:.1} messages a second, then {took:?}"
    );
    require!(took.is_some(), "those that have crashed are not removed");
    stage.ends_well_for(&others)
}

#[test]
fn a_table_that_takes_no_commit_causes_no_flood() {
    let cases = [(5, 1), (12, 4), (30, 6), (30, 12)];
    for_each(&cases, 0..5, many_crash_while_no_commit_lands);
}

/// One machine crashes. Each of the others stands still now and then, for less than the failure window, and
/// knows nothing of anybody for a moment after that.
fn a_machine_crashes_where_all_pause(seed: u64, silos: usize) -> Result<Duration, Box<dyn Error>> {
    let mut stage = Stage::set(seed, silos)?;
    let drawn = stage.draw(silos);
    let (gone, others) = (drawn[0], &drawn[1..]);
    let from = stage.cluster.now();
    stage.cluster.crash_machine(gone);
    let mut next = vec![from; others.len()];
    while !stage.is_dead(gone) && stage.cluster.now() - from < S(300) {
        let now = stage.cluster.now();
        for (at, id) in next.iter_mut().zip(others) {
            if *at <= now {
                let stall = stage.cluster.rng().between(MS(500), S(4));
                let runs = stage.cluster.rng().between(S(4), S(15));
                stage.cluster.pause(*id, stall);
                *at = now + stall + runs;
            }
        }
        stage.cluster.run_for(MS(200))?;
    }
    let took = stage.cluster.now() - from;
    stage.all_live(others)?;
    Ok(took)
}

#[test]
fn a_crash_is_noticed_where_all_pause_now_and_then() {
    for silos in [9, 30] {
        let what = format!("crash of one of {silos} that pause");
        let (median, p99) = times(&what, 0..45, |seed| {
            a_machine_crashes_where_all_pause(seed, silos)
        });
        assert!(median <= S(20) && p99 <= S(90), "{median:?} {p99:?}");
    }
}

/// The machine of one silo refuses connections for a moment, and some never reach it again. All others do,
/// after that moment: what they found in it does not end the silo.
fn a_machine_refuses_for_a_moment(seed: u64, (silos, cut): (usize, usize)) -> Outcome {
    let mut stage = Stage::set(seed, silos)?;
    let drawn = stage.draw(silos);
    let (silo, others) = (drawn[0], &drawn[1..]);
    let offset = stage.cluster.rng().between(S(0), S(10));
    stage.cluster.run_for(offset)?;
    let peer = stage.cluster.address(silo).ok_or("no address")?.endpoint();
    stage.cluster.cut_both_ways(&[silo], others);
    for id in others {
        stage.cluster.inject(*id, Input::Disconnected { peer });
    }
    let lasts = stage.cluster.rng().below(40) + 6;
    for _ in 0..lasts {
        stage.cluster.run_for(MS(10))?;
        for id in others {
            let failed = Input::SendFailed {
                to: peer,
                refused: true,
                reason: "refused".into(),
            };
            stage.cluster.inject(*id, failed);
        }
    }
    let stays = |a: ProcessId, b: ProcessId| a == silo && others[..cut].contains(&b);
    stage
        .cluster
        .mend_links(|a, b| !stays(a, b) && !stays(b, a));
    stage.cluster.run_for(S(30))?;
    stage.all_live(&[silo])
}

#[test]
fn what_was_refused_for_a_moment_ends_nobody() {
    for_each(
        &[(9, 1), (20, 1), (20, 2), (20, 4)],
        0..20,
        a_machine_refuses_for_a_moment,
    );
}

/// One machine crashes while two of five messages are lost everywhere.
fn a_machine_crashes_under_loss(seed: u64, silos: usize) -> Result<Duration, Box<dyn Error>> {
    let mut stage = Stage::set(seed, silos)?;
    let gone = stage.draw(1)[0];
    stage.cluster.message_loss(0.4);
    let offset = stage.cluster.rng().between(S(0), S(5));
    stage.cluster.run_for(offset)?;
    let from = stage.cluster.now();
    stage.cluster.crash_machine(gone);
    while !stage.is_dead(gone) && stage.cluster.now() - from < S(240) {
        stage.cluster.run_for(MS(100))?;
    }
    Ok(stage.cluster.now() - from)
}

#[test]
fn a_crash_is_noticed_where_two_of_five_messages_are_lost() {
    for silos in [5, 9] {
        let what = format!("crash of one of {silos} that lose 40 %");
        let (median, p99) = times(&what, 0..60, |seed| {
            a_machine_crashes_under_loss(seed, silos)
        });
        assert!(median <= S(12) && p99 <= S(60), "{median:?} {p99:?}");
    }
}
