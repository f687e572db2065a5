//! Which silos make a majority.

use super::*;
use crate::SuspicionReason;
use crate::intent::{Count, outnumber};

#[test]
fn more_than_half_that_failed_are_a_majority() {
    let mut c = Calling::new(5).crash([5]);
    c.start([5]);
    let [verdict] = &c.end()[..] else {
        panic!("no verdict")
    };
    assert_eq!(verdict.silo, silo(5));
    assert_eq!(verdict.call.failed, (1..=4).map(silo).collect::<Vec<_>>());
    assert_eq!((verdict.call.reached, verdict.call.sample), (0, None));
    // The votes of all that consent, each written by the caller.
    let votes = verdict.votes.iter().map(|v| (v.accuser, v.evidence.via));
    let me = Some(silo(1));
    let expected = [(silo(1), None), (silo(2), me), (silo(3), me), (silo(4), me)];
    assert_eq!(votes.collect::<Vec<_>>(), expected);
    let counted = verdict.votes[0].evidence.roll_call.unwrap();
    assert_eq!(
        (
            counted.asked,
            counted.failed,
            counted.reached,
            counted.silent
        ),
        (4, 4, 0, 0)
    );
    assert!(c.asked.contains(&silo(5)), "the suspect is asked, too");
}

#[test]
fn silos_that_reach_the_suspect_keep_it() {
    let mut c = Calling::new(5).split([1, 2], &[5]);
    assert_eq!(c.lost([5]), silos([]));
    assert!(c.elapsed() < secs(4), "it does not wait for a window");
    let told: Silos = c.results.iter().map(|(to, ..)| *to).collect();
    assert_eq!(told, silos([2, 3, 4]));
    assert!(
        c.results
            .iter()
            .all(|(_, s, n)| (s, *n) == (&silos([5]), 4))
    );
    // One more fails to reach it.
    let mut c = Calling::new(5).split([1, 2, 3], &[5]);
    assert_eq!(c.lost([5]), silos([5]));
    assert_eq!(c.results.len(), 0);
}

#[test]
fn unknown_and_silence_are_no_failures() {
    let mut c = Calling::new(5).crash([5]);
    c.said.insert((silo(3), silo(5)), Finding::Unknown);
    c.cut.insert((silo(4), silo(1)));
    c.cut.insert((silo(2), silo(1)));
    assert_eq!(c.lost([5]), silos([]), "one failed of five");
    c = Calling::new(5).crash([5]);
    c.said.insert((silo(3), silo(5)), Finding::Unknown);
    c.cut.insert((silo(4), silo(1)));
    assert_eq!(c.lost([5]), silos([]), "two of five");
}

#[test]
fn a_suspect_that_the_caller_reaches_itself_is_kept() {
    let mut c = Calling::new(5).split([2, 3, 4], &[5]);
    c.cut.insert((silo(5), silo(1)));
    assert_eq!(c.lost([5]), silos([]));
    let mut c = Calling::new(5).crash([5]);
    c.said.insert((silo(1), silo(5)), Finding::Unknown);
    assert_eq!(c.lost([5]), silos([]), "nor does one that cannot judge");
}

/// What a silo says that has failed to reach the suspect, and does not feel well.
fn failed_without_consent() -> Finding {
    let mut finding = failed_for(secs(9));
    if let Finding::Failed { consent, .. } = &mut finding {
        *consent = None;
    }
    finding
}

#[test]
fn a_silo_that_does_not_consent_counts_but_its_vote_is_not_written() {
    let mut c = Calling::new(5).crash([5]);
    c.said.insert((silo(2), silo(5)), failed_without_consent());
    c.start([5]);
    let verdict = c.end().remove(0);
    assert!(verdict.call.failed.contains(&silo(2)));
    let accusers: Vec<_> = verdict.votes.iter().map(|v| v.accuser).collect();
    assert_eq!(accusers, [silo(1), silo(3), silo(4)]);
}

#[test]
fn whoever_consented_once_does_so_to_the_end_of_the_call() {
    let mut c = Calling::new(5).crash([5]);
    let others = [2, 3, 4].map(|n| ((silo(n), silo(5)), failed_for(secs(0))));
    c.said.extend(others);
    c.start([5]);
    c.deliver();
    c.poll();
    c.go_on_for(ms(1_000));
    // Only the suspect probed it, so it does not feel well any more.
    c.said.insert((silo(2), silo(5)), failed_without_consent());
    let verdict = c.end().remove(0);
    let accusers: Vec<_> = verdict.votes.iter().map(|v| v.accuser).collect();
    assert_eq!(accusers, [1, 2, 3, 4].map(silo));
}

#[test]
fn the_half_with_the_leader_is_a_majority() {
    // Silo 1, which calls, became Active first.
    let mut c = Calling::new(4).split([1, 2], &[3, 4]);
    assert_eq!(c.lost([3]), silos([3, 4]));
    let led_by = |first: u8| {
        let since = |n: u8| if n == first { 0 } else { u64::from(n) };
        let rows = (1..=4).map(|n| led((since(n), entry(silo(n), SiloStatus::Active))));
        Calling::with_rows(rows.collect()).split([1, 2], &[3, 4])
    };
    assert_eq!(led_by(2).lost([3]), silos([3, 4]), "silo 2 leads");
    assert_eq!(led_by(3).lost([3]), silos([]), "silo 3 leads");
}

#[test]
fn the_smaller_side_of_a_split_votes_nobody_out() {
    let mut c = Calling::new(7).split([1, 2, 3], &[4, 5, 6, 7]);
    assert_eq!(c.lost([4, 5]), silos([]));
    let mut c = Calling::new(7).split([1, 2, 3, 4], &[5, 6, 7]);
    assert_eq!(c.lost([5]), silos([5, 6, 7]), "the larger side all of it");
}

#[test]
fn two_active_silos_never_vote_each_other_out() {
    let mut c = Calling::new(2).crash([2]);
    assert_eq!(c.lost([2]), silos([]));
    c = Calling::new(2).crash([2]);
    c.stale = silos([2]);
    assert_eq!(c.lost([2]), silos([2]), "unless its heartbeat is stale");
}

#[test]
fn stale_silos_do_not_count() {
    let mut c = Calling::new(7).crash([3, 4, 5, 7]);
    assert_eq!(c.lost([7]), silos([]), "three of seven");
    let mut c = Calling::new(7).crash([3, 4, 5, 7]);
    c.stale = silos([3, 4]);
    assert_eq!(c.lost([7]), silos([3, 4, 5, 7]), "three of five");
}

#[test]
fn a_stale_suspect_needs_as_many_failures_as_votes() {
    // Most silos of the cluster crashed.
    let stale = |crashed: &[u8]| {
        let mut c = Calling::new(7).crash(crashed.iter().copied());
        c.stale = silos(crashed.iter().copied());
        c
    };
    let mut c = stale(&[3, 4, 5, 6, 7]);
    assert_eq!(c.lost([7]), silos([3, 4, 5, 6, 7]));
    // Nobody who answers may reach it.
    let mut c = stale(&[3, 4, 5, 6, 7]);
    c.said.insert((silo(2), silo(7)), Finding::Reached);
    assert_eq!(c.lost(3..=7), silos([3, 4, 5, 6]));
    // Unknown hinders only where votes are missing.
    let mut c = stale(&[7]);
    for n in 3..=6 {
        c.said.insert((silo(n), silo(7)), Finding::Unknown);
    }
    assert_eq!(c.lost([7]), silos([7]), "two failed, two votes are needed");
    c.said.insert((silo(2), silo(7)), Finding::Unknown);
    c.roll_call.standoff.clear();
    assert_eq!(c.lost([7]), silos([]));
}

#[test]
fn a_stale_suspect_waits_for_silos_that_are_only_slow() {
    let mut c = Calling::new(4).crash([4]);
    c.stale = silos([4]);
    c.cut.extend([(silo(1), silo(3)), (silo(3), silo(1))]);
    c.said.insert((silo(1), silo(3)), failed_for(secs(0)));
    c.start([4]);
    c.end();
    assert!(
        c.elapsed() >= secs(3 + 4),
        "silo 3 has a failure window, too"
    );
}

#[test]
fn a_joining_suspect_is_judged_by_active_and_joining_silos() {
    let rows = |joining: &[u8]| {
        let mut rows = actives(1..=3);
        let joining = joining.iter().map(|n| entry(silo(*n), SiloStatus::Joining));
        rows.extend(joining);
        (1..).zip(rows).map(led).collect()
    };
    let mut c = Calling::with_rows(rows(&[5, 6])).crash([6]);
    assert_eq!(c.lost([6]), silos([6]));
    assert!(c.asked.contains(&silo(5)));
    // Here most of them reach it: those that join.
    let mut c = Calling::with_rows(rows(&[4, 5, 6, 7, 8])).split(1..=3, &[6]);
    assert_eq!(c.lost([6]), silos([]));
    // An Active suspect is no matter of those that join.
    let mut c = Calling::with_rows(rows(&[4, 5])).crash([3]);
    assert_eq!(c.lost([3]), silos([3]));
    assert!(!c.asked.contains(&silo(4)));
}

#[test]
fn the_leader_keeps_a_stale_silo_that_it_reaches_where_joining_ones_count() {
    let lost = |leader: u8| {
        let mut active = vec![silo(leader)];
        active.extend(
            [1, 2, 3]
                .map(silo)
                .into_iter()
                .filter(|s| *s != silo(leader)),
        );
        let rows = active.into_iter().map(|s| entry(s, SiloStatus::Active));
        let rows = rows.chain([entry(silo(4), SiloStatus::Joining)]);
        let mut c = Calling::with_rows((1..).zip(rows).map(led).collect());
        c.stale = silos([3]);
        // Silo 1, and the newcomer; silo 2 reaches it.
        c.cut
            .extend([(silo(1), silo(3)), (silo(4), silo(3)), (silo(3), silo(1))]);
        c.lost([3])
    };
    assert_eq!(lost(2), silos([]));
    assert_eq!(lost(1), silos([3]));
}

#[test]
fn a_stuck_silo_is_voted_out_by_the_larger_side_though_it_answers() {
    let stuck = |n: u8| {
        let mut rows = actives(1..=n);
        rows.push(entry(silo(9), SiloStatus::Joining));
        Calling::with_rows((1..).zip(rows).map(led).collect())
    };
    let mut c = stuck(3);
    c.start_against(&silos([9]), true);
    let verdict = c.end().remove(0);
    assert_eq!(verdict.votes[0].reason, SuspicionReason::Stuck);
    let mut c = stuck(5).split([1, 2], &[3, 4, 5, 9]);
    c.start_against(&silos([9]), true);
    assert!(c.end().iter().all(|v| v.silo != silo(9)));
}

#[test]
fn above_512_others_a_sample_is_asked() {
    let big = |n: u16| SiloAddress::new(silo(1).ip(), 7_100 + n, 1);
    let many = || Calling::among((0..800).map(big).collect());
    let victim = big(799);
    let mut c = many();
    c.down.insert(victim);
    c.start_against(&[victim].into(), false);
    let verdict = c.end().remove(0);
    let asked = c.asked.len();
    // Besides the sample, the suspect and those that probe it.
    assert!((512..=523).contains(&asked), "{asked} asked");
    let rings = crate::protocol::rings::Rings {
        silos: 10,
        one: false,
    };
    let members = &c.ctx.members;
    let watchers =
        crate::protocol::rings::watchers(&victim, &members.alive, &members.places, rings);
    let me = c.ctx.me;
    let asks = |silo: &SiloAddress| *silo == me || c.asked.contains(silo);
    assert!(
        watchers.len() > 5 && watchers.iter().all(asks),
        "{watchers:?}"
    );
    assert_eq!(verdict.call.sample, u32::try_from(asked).ok());
    // Another call asks others.
    let mut other = many();
    other.ctx.random();
    other.start_against(&[victim].into(), false);
    other.end();
    assert_ne!(c.asked, other.asked);
    // Of 800 silos, 52 in a hundred are a majority, but a sample does not make sure of that.
    let mut c = many();
    c.cut.extend((0..416).map(|n| (big(n), victim)));
    c.cut.insert((victim, big(0)));
    c.start_against(&[victim].into(), false);
    assert_eq!(c.end().len(), 0);
    let mut c = many();
    c.cut.extend((0..500).map(|n| (big(n), victim)));
    c.cut.insert((victim, big(0)));
    c.start_against(&[victim].into(), false);
    assert_eq!(c.end().len(), 1, "of 62 in a hundred it does");
}

#[test]
fn one_that_names_everybody_makes_no_suspects_of_those_that_answer() {
    let big = |n: u16| SiloAddress::new(silo(1).ip(), 7_100 + n, 1);
    let all: Vec<SiloAddress> = (0..800).map(big).collect();
    let mut c = Calling::among(all.clone());
    let (victim, gone) = (big(799), big(798));
    c.down.extend([victim, gone]);
    // Most of them are not asked.
    for n in 1..100 {
        c.missed.insert(big(n), all.clone());
    }
    c.start_against(&[victim].into(), false);
    let lost: Silos = c.end().into_iter().map(|v| v.silo).collect();
    let most = c.rounds.iter().map(|(_, named)| named.len()).max();
    assert_eq!(most, Some(2), "suspects asked about");
    assert_eq!(lost, [victim, gone].into());
}

#[test]
fn a_sample_must_exceed_half_by_what_its_size_leaves_to_chance() {
    let least = |all: usize, sample: usize| {
        let enough = |some: usize| {
            let active = Count { all, some };
            outnumber(active, Count::default(), false, false, Some(sample))
        };
        let least = (0..=sample).find(|some| enough(*some)).unwrap();
        assert!((least..=sample).all(enough), "{least} of {sample}");
        least
    };
    assert_eq!(least(1_000_000, 256), 171, "two thirds of 256");
    assert_eq!(least(1_000_000, 512), 317);
    assert_eq!(least(1_000, 512), 299);
    assert_eq!(least(513, 512), 259);
    // All of them were asked, or some have left since.
    assert_eq!((least(512, 512), least(400, 512)), (257, 257));
    assert_eq!(least(513, 513), 257, "a majority");
}

#[test]
fn a_call_that_no_majority_answers_challenges_whom_nobody_reached() {
    let mut c = Calling::new(9).crash(6..=9).split([1], &[5]);
    // Silo 5 does not answer this silo, but silo 2 reaches it.
    c.said.insert((silo(3), silo(6)), Finding::Unknown);
    assert_eq!(c.lost([5, 9]), silos([]));
    assert!(c.roll_call.is_outnumbered());
    let challenges = c.roll_call.take_challenges();
    let whom: Silos = challenges.iter().map(|(silo, _)| *silo).collect();
    assert_eq!(whom, silos(6..=9));
    for (_, votes) in challenges {
        let [vote] = &votes[..] else {
            panic!("{votes:?}")
        };
        assert_eq!(
            (vote.accuser, vote.reason),
            (silo(1), SuspicionReason::Challenge)
        );
    }
    assert_eq!(c.roll_call.take_challenges(), []);
    // A majority answers: whoever it loses dies, and nobody is challenged.
    let mut c = Calling::new(9).crash(6..=9);
    c.lost([9]);
    assert!(!c.roll_call.is_outnumbered() && c.roll_call.take_challenges().is_empty());
}

#[test]
fn whom_nobody_answers_challenges_few() {
    // It may be the only one that is well, or hear nobody.
    let mut c = Calling::new(200).crash(2..=200);
    assert_eq!(c.lost(2..=11), silos([]));
    assert!(c.roll_call.is_outnumbered());
    assert_eq!(c.roll_call.take_challenges().len(), 32);
    // Two that answer each other know that it is not them.
    let mut c = Calling::new(200).crash(3..=200);
    assert_eq!(c.lost(3..=12), silos([]));
    assert_eq!(c.roll_call.take_challenges().len(), 198);
}

#[test]
fn challenged_silos_that_write_no_heartbeats_need_no_majority_but_count_in_it() {
    let mut c = Calling::new(9).crash(5..=9);
    c.challenged = silos([8, 9]);
    assert_eq!(c.lost([7, 8, 9]), silos([8, 9]));
    // One that anybody reaches lives.
    let mut c = Calling::new(9).crash(5..=8).split([1, 2, 3], &[9]);
    c.challenged = silos([8, 9]);
    assert_eq!(c.lost([8, 9]), silos([8]));
}

/// The vote may have to wait for the table, and what is no longer waited for cannot be voted out.
#[test]
fn a_challenge_counts_until_the_vote_is_written() {
    let mut c = Calling::new(5).crash(2..=5);
    c.challenged = silos(2..=5);
    assert_eq!(c.lost(2..=5), silos(2..=5));
    assert!(c.roll_call.is_outnumbered());
}

#[test]
fn the_last_active_silo_challenges_one_that_leaves() {
    let leaving = |active: u8, joining: &[u8]| {
        let mut rows = actives(1..=active);
        rows.push(entry(silo(9), SiloStatus::ShuttingDown));
        rows.extend(joining.iter().map(|n| entry(silo(*n), SiloStatus::Joining)));
        Calling::with_rows(rows).crash([9])
    };
    let mut c = leaving(1, &[]);
    assert_eq!(c.lost([9]), silos([]), "one of two");
    let challenges = c.roll_call.take_challenges();
    assert_eq!(challenges.len(), 1);
    // It has written no heartbeat since.
    let mut c = leaving(1, &[]);
    c.challenged = silos([9]);
    assert_eq!(c.lost([9]), silos([9]));
    let mut c = leaving(1, &[]);
    c.stale = silos([9]);
    assert_eq!(c.lost([9]), silos([9]));
    assert_eq!(leaving(1, &[5]).lost([9]), silos([9]), "two of three");
    assert_eq!(leaving(2, &[]).lost([9]), silos([9]), "two of three");
}
