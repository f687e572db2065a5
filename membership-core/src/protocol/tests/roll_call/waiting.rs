//! What a call waits for, and who becomes a suspect of it.

use super::*;
use crate::protocol::standoff::Expiry;

#[test]
fn nobody_is_lost_before_a_failure_window_has_passed() {
    let mut c = Calling::new(5).crash([5]);
    assert_eq!(c.lost([5]), silos([5]));
    assert_eq!(c.elapsed(), ms(4_500), "since the first unanswered message");
    // It had answered one of the others a second after it fell silent towards the caller, so the
    // caller's link may be cut: the silence begins with the call.
    let mut c = Calling::new(5).crash([5]);
    let Finding::Failed {
        silent_ms,
        refused,
        consent,
        ..
    } = failed_for(secs(1))
    else {
        panic!()
    };
    let heard = Finding::Failed {
        silent_ms,
        heard_ms: Some(2_000),
        refused,
        consent,
    };
    c.said.insert((silo(2), silo(5)), heard);
    c.start([5]);
    c.deliver();
    c.said.clear();
    assert_eq!(c.end().len(), 1);
    assert_eq!(c.elapsed(), ms(3_000 + 4_500));
    let rounds: Vec<_> = c.rounds.iter().map(|(at, _)| *at).collect();
    // Twice more the one that has not answered the call, then everybody, at least once in a timeout, and
    // when the window is over.
    let asked_again = [3_187, 3_750, 4_500, 6_000, 7_500].map(ms);
    assert_eq!(rounds[0], ms(3_000));
    let close = |(at, by): (&Duration, &Duration)| at.abs_diff(*by) <= ms(1);
    let pairs = rounds[1..].iter().zip(&asked_again);
    assert!(
        rounds.len() == 6 && pairs.into_iter().all(close),
        "{rounds:?}"
    );
}

#[test]
fn only_what_is_said_after_the_window_counts() {
    let call = |back: &[u8]| {
        let mut c = Calling::new(5).crash([5]);
        c.start([5]);
        c.deliver();
        c.poll();
        // It reaches these three again just before the window ends, and their word is lost.
        for n in back {
            c.cut.insert((silo(*n), silo(1)));
        }
        let deaths = c.end();
        (deaths.len(), deaths.first().map_or(0, |v| v.votes.len()))
    };
    assert_eq!(call(&[]), (1, 4));
    assert_eq!(call(&[2]), (1, 3), "the vote of silo 2 is not written");
    assert_eq!(call(&[2, 3]), (0, 0));
}

#[test]
fn whoever_was_asked_when_the_window_ended_has_a_moment_to_answer() {
    let call = |reaches: bool| {
        let mut c = Calling::new(5).crash([5]);
        c.start([5]);
        c.deliver();
        c.poll();
        // Three of five say at once that they fail, and this one does not answer.
        c.cut.insert((silo(2), silo(1)));
        c.go_on_for(ms(1_600));
        if reaches {
            c.say(2, 5, Finding::Reached);
        }
        assert_eq!(c.end().len(), 1);
        c.elapsed()
    };
    assert_eq!(call(false), ms(4_500) + ms(1_500) / 8);
    // It reached the suspect within the last timeout: the window begins anew.
    assert!(call(true) >= ms(4_600 - 1_500 + 4_500));
}

#[test]
fn whoever_says_nothing_when_the_window_ends_is_soon_asked_again() {
    let mut c = Calling::new(5).crash([5]);
    c.start([5]);
    c.deliver();
    c.cut.extend([(silo(2), silo(1)), (silo(3), silo(1))]);
    c.go_on_for(ms(1_800));
    assert!(c.roll_call.is_running());
    c.cut.clear();
    assert_eq!(c.end().len(), 1);
    assert_eq!(c.elapsed(), ms(4_500 + 375), "a quarter of a timeout later");
}

#[test]
fn whoever_was_not_asked_yet_is_no_suspect() {
    // It hears nobody, so it asks a few at first; when it finds out who is silent, it has not asked all.
    let mut c = Calling::new(120).crash([5]);
    c.quiet = true;
    assert_eq!(c.lost([5]), silos([5]));
    assert!(c.asked.len() > 100, "{}", c.asked.len());
    let about: Silos = c.rounds.iter().flat_map(|(_, of)| of).copied().collect();
    assert_eq!(about, silos([5]));
}

#[test]
fn whoever_is_asked_when_the_network_comes_back_has_as_much_time() {
    let all: Vec<u8> = (2..=250).collect();
    let mut c = Calling::new(250).crash([5]).split([1], &all);
    c.quiet = true;
    c.start([5]);
    c.go_on_for(ms(400));
    c.cut.clear();
    assert_eq!(c.end().len(), 1);
    let about: Silos = c.rounds.iter().flat_map(|(_, of)| of).copied().collect();
    assert_eq!(about, silos([5]));
}

#[test]
fn whoever_answers_after_a_call_that_reached_nobody_makes_the_next_one_possible() {
    let call = |hears: &[u8]| {
        let mut c = Calling::new(5).split([1], &[2, 3, 4, 5]);
        c.start([2, 3, 4, 5]);
        c.deliver();
        // Their answers to probes arrive; the call was lost.
        for n in hears {
            c.roll_call.on_sign_of_life(&silo(*n));
        }
        assert_eq!(c.end().len(), 0);
        pass_time(&mut c.ctx, secs(30));
        c.roll_call.is_due(&c.ctx, &silo(5), Expiry::No)
    };
    assert!(!call(&[]), "nothing has changed");
    assert!(!call(&[2]));
    assert!(call(&[2, 3]));
}

#[test]
fn a_message_of_an_answerer_may_be_the_first_that_is_unanswered() {
    // A message of one silo is not enough: the link may have been cut.
    let mut c = Calling::new(5).crash([5]);
    c.said.insert((silo(2), silo(5)), failed_for(secs(10)));
    for n in [1, 3, 4] {
        let said = failed_after(secs(2), secs(9));
        c.said.insert((silo(n), silo(5)), said);
    }
    assert_eq!(c.lost([5]), silos([5]));
    assert!(c.elapsed() >= ms(5_500), "{:?}", c.elapsed());
    let mut c = Calling::new(5).crash([5]);
    c.said.insert((silo(2), silo(5)), failed_for(secs(10)));
    c.said.insert((silo(3), silo(5)), failed_for(secs(10)));
    // It answered the others before that.
    for n in [1, 4] {
        let said = failed_after(secs(3), secs(9));
        c.said.insert((silo(n), silo(5)), said);
    }
    assert_eq!(c.lost([5]), silos([5]));
    // It has the time of one probe to answer the call.
    assert_eq!(c.elapsed(), ms(3_000 + 1_500));
}

#[test]
fn refused_connections_need_a_quarter_of_the_window() {
    let refuses = |silos: &[u8]| {
        let mut c = Calling::new(5).crash([5]);
        for n in silos {
            let Finding::Failed { consent, .. } = failed_for(secs(0)) else {
                panic!()
            };
            let refused = Finding::Failed {
                silent_ms: 100,
                heard_ms: None,
                refused: true,
                consent,
            };
            c.said.insert((silo(*n), silo(5)), refused);
        }
        assert_eq!(c.lost([5]), silos_5());
        c.elapsed()
    };
    assert_eq!(refuses(&[1, 2, 3]), ms(3_000 + 1_125));
    assert_eq!(refuses(&[1, 2]), ms(4_500), "they must be a majority");
}

fn silos_5() -> Silos {
    silos([5])
}

#[test]
fn a_failure_counts_for_two_timeouts() {
    let mut c = Calling::new(5).crash([5]);
    c.start([5]);
    c.deliver();
    // From now on the others say nothing more, and the caller's own failure is not renewed.
    pass_time(&mut c.ctx, ms(3_001));
    c.cut.extend((2..=4).map(|n| (silo(n), silo(1))));
    c.roll_call.look();
    assert_eq!(c.end().len(), 0);
}

#[test]
fn silos_that_do_not_answer_become_suspects_of_the_call() {
    let mut c = Calling::new(9).crash([7, 8, 9]);
    assert_eq!(c.lost([9]), silos([7, 8, 9]), "they leave together");
    let (at, named) = c.rounds.iter().find(|(_, s)| s.len() == 3).unwrap();
    assert_eq!(named, &silos([7, 8, 9]));
    assert!(*at <= secs(3) + ms(1_125 + 100), "{at:?}");
    assert!(c.elapsed() <= secs(3) + ms(4_600), "{:?}", c.elapsed());
}

#[test]
fn where_a_third_is_silent_and_others_answer_nobody_waits_for_the_silent() {
    // When the others were first asked about all that are silent.
    let asked_at = |n: u8, down: u8| {
        let mut c = Calling::new(n).crash(n - down + 1..=n);
        c.lost([n]);
        let all = usize::from(down);
        let round = c.rounds.iter().find(|(_, named)| named.len() == all);
        round.unwrap().0 - secs(3)
    };
    let (soon, late) = (ms(1_500) / 4, ms(1_500) * 3 / 4);
    assert!(asked_at(25, 8) < late && asked_at(25, 8) >= soon, "a third");
    assert!(asked_at(25, 7) >= late, "less than a third");
    assert!(asked_at(25, 21) < late, "one in eight answers");
    assert!(asked_at(25, 22) >= late, "less than one in eight");
}

#[test]
fn silent_silos_are_no_suspects_while_others_reach_all_suspects() {
    let mut c = Calling::new(9).crash([7, 8]).split(1..=4, &[9]);
    assert_eq!(c.lost([9]), silos([]));
    let named: Silos = c.rounds.iter().flat_map(|(_, s)| s.clone()).collect();
    assert_eq!(named, silos([9]), "this silo hears badly");
    // Half of its suspects are reached by nobody.
    let mut c = Calling::new(9).crash([6, 7, 8]).split([1], &[9]);
    assert_eq!(c.lost([6, 9]), silos([6, 7, 8]));
}

#[test]
fn what_was_said_a_while_ago_is_waited_for() {
    let mut c = Calling::new(5).crash([5]);
    c.said.insert((silo(4), silo(5)), Finding::Unknown);
    // It has answered a moment ago, so a failure window passes from now on.
    for n in 1..=3 {
        let said = failed_after(secs(0), secs(0));
        c.said.insert((silo(n), silo(5)), said);
    }
    c.start([5]);
    c.deliver();
    // Silo 3, which is needed, answers the next questions late.
    c.cut.insert((silo(3), silo(1)));
    let mut lost = Silos::new();
    while c.roll_call.is_running() {
        if c.elapsed() >= secs(3) + ms(3_200) {
            c.cut.clear();
        }
        pass_time(&mut c.ctx, ms(100));
        c.ctx.timers.pop_due(c.ctx.now.mono);
        c.roll_call.look();
        lost.extend(c.poll().into_iter().map(|v| v.silo));
    }
    assert_eq!(lost, silos([5]));
    assert!(c.elapsed() >= secs(3) + ms(4_500), "{:?}", c.elapsed());
}

#[test]
fn silos_that_an_answerer_has_missed_become_suspects_when_asked_twice() {
    let mut c = Calling::new(9).crash([8, 9]);
    c.missed
        .insert(silo(2), vec![silo(8), silo(3), silo(1), silo(77)]);
    assert_eq!(c.lost([9]), silos([8, 9]));
    let named: Silos = c.rounds.iter().flat_map(|(_, s)| s.clone()).collect();
    // Neither the caller, nor one that has no row, nor one that answers itself.
    assert_eq!(named, silos([8, 9]));
    let (at, _) = c.rounds.iter().find(|(_, s)| s.contains(&silo(8))).unwrap();
    assert!(*at <= secs(3) + ms(375 + 100), "{at:?}");
}

#[test]
fn a_silo_that_has_answered_the_call_is_not_made_a_suspect() {
    let mut c = Calling::new(5).crash([5]);
    c.missed.insert(silo(4), vec![silo(2), silo(3)]);
    c.start([5]);
    c.deliver();
    c.poll();
    assert_eq!(c.end().len(), 1);
    assert!(
        c.rounds.iter().all(|(_, s)| *s == silos([5])),
        "{:?}",
        c.rounds
    );
}

#[test]
fn the_answer_of_a_suspect_clears_it() {
    // It answers the call itself.
    let mut c = Calling::new(5);
    for n in 1..=4 {
        c.said.insert((silo(n), silo(5)), failed_for(secs(9)));
    }
    assert_eq!(c.lost([5]), silos([]));
    assert_eq!(c.results.len(), 0, "nobody is suspected any more");
    // It answers a probe of the caller.
    let mut c = Calling::new(5).crash([4, 5]);
    c.start([4, 5]);
    c.deliver();
    c.roll_call.on_sign_of_life(&silo(5));
    c.said.insert((silo(1), silo(5)), Finding::Reached);
    let lost: Silos = c.end().into_iter().map(|v| v.silo).collect();
    assert_eq!(lost, silos([4]));
}

#[test]
fn a_suspect_that_dies_meanwhile_is_left_out() {
    let mut c = Calling::new(5).crash([4, 5]);
    c.start([4, 5]);
    c.deliver();
    let mut rows: Vec<_> = actives([1, 2, 3, 4]);
    rows.push(entry(silo(5), SiloStatus::Dead));
    believe(&mut c.ctx, snapshot(6, rows));
    c.roll_call.look();
    let lost: Silos = c.end().into_iter().map(|v| v.silo).collect();
    assert_eq!(lost, silos([4]));
}

#[test]
fn only_answers_to_this_call_count() {
    let mut c = Calling::new(5).crash([2, 3, 4, 5]);
    c.start([5]);
    let call = sent(&mut c.ctx).into_iter().find_map(|(_, m)| match m {
        Message::RollCall { call, .. } => Some(call),
        _ => None,
    });
    let call = call.unwrap();
    let began = Some(c.ctx.now.mono);
    let mut answer = |from: u8, call| {
        let findings = [(silo(5), failed_for(secs(9)))];
        c.roll_call
            .on_answer(&c.ctx, silo(from), call, &findings, &[])
    };
    assert_eq!(answer(2, call ^ 1), None, "of another call");
    assert_eq!(answer(9, call), None, "by a silo that was not asked");
    assert_eq!(answer(2, call), began);
    assert_eq!(c.end().len(), 0, "two of five");
}

#[test]
fn a_silo_that_hears_nobody_asks_a_few_first() {
    let ask = |quiet: bool, answers: bool| {
        let mut c = Calling::new(40).crash(if answers { 40..=40 } else { 2..=40 });
        c.quiet = quiet;
        c.start([40]);
        let sent = c.ctx.out.len();
        let lost: Silos = c.end().into_iter().map(|v| v.silo).collect();
        (sent, c.asked.len(), lost)
    };
    assert_eq!(ask(false, true), (39, 39, silos([40])));
    assert_eq!(ask(true, true), (10, 39, silos([40])), "then all others");
    let (first, all, lost) = ask(true, false);
    assert_eq!((first, lost), (10, silos([])));
    assert!(all <= 30, "three times ten, not {all}");
}

#[test]
fn a_call_ends_although_nobody_answers() {
    let mut c = Calling::new(5).crash([2, 3, 4, 5]);
    assert_eq!(c.lost([5]), silos([]));
    assert!(
        c.elapsed() <= secs(3) + ms(4_500 + 3_000),
        "{:?}",
        c.elapsed()
    );
    assert!(c.ctx.timers.next().is_some(), "the standoff begins");
}

#[test]
fn a_pause_ends_a_call_without_a_result() {
    let mut c = Calling::new(5).crash([5]);
    c.start([5]);
    c.deliver();
    c.roll_call.void(&mut c.ctx);
    assert!(!c.roll_call.is_running() && c.ctx.timers.next().is_none());
    assert_eq!(c.poll().len(), 0);
}

#[test]
fn a_silo_that_was_asked_about_a_suspect_waits_with_its_own_call() {
    let mut c = Calling::new(5);
    let due = |c: &Calling, n| c.roll_call.is_due(&c.ctx, &silo(n), Expiry::No);
    assert!(due(&c, 5));
    c.roll_call.held.on_call(&mut c.ctx, silo(2), ms(2_250));
    assert!(!due(&c, 5) && !due(&c, 4));
    c.roll_call.wake(&mut c.ctx);
    let by = c.ctx.timers.next().unwrap().since(c.ctx.now.mono);
    assert!(by >= ms(2_250) && by <= ms(2_250 + 5 * 15), "{by:?}");
    pass_time(&mut c.ctx, by);
    assert!(due(&c, 5));
}

/// One of two Active silos is gone, and a Joining one was not well when it was asked about it. Now it
/// is, and asks; but it has no vote.
#[test]
fn a_joining_silo_that_can_say_something_now_is_asked_again_at_once() {
    let call = |active: u8, suspect: u8, unwell: bool| {
        let mut rows = actives(1..=active);
        rows.push(entry(silo(40), SiloStatus::Joining));
        if suspect > active {
            rows.push(entry(silo(suspect), SiloStatus::Joining));
        }
        let mut c = Calling::with_rows(rows).crash([suspect]);
        for n in 3..=active {
            c.said.insert((silo(n), silo(suspect)), Finding::Reached);
        }
        let finding = if unwell {
            Finding::Unknown
        } else {
            Finding::Reached
        };
        c.said.insert((silo(40), silo(suspect)), finding);
        // The waits between calls have grown.
        for _ in 0..5 {
            pass_time(&mut c.ctx, secs(40));
            assert_eq!(c.lost([suspect]), silos([]));
            c.ctx.timers.clear(Timer::Standoff);
        }
        pass_time(&mut c.ctx, secs(5));
        let due = |c: &Calling| c.roll_call.is_due(&c.ctx, &silo(suspect), Expiry::No);
        assert!(!due(&c));
        c.roll_call
            .on_call(&mut c.ctx, silo(40), &[(silo(suspect), 9_000)], true);
        if !due(&c) {
            return silos([]);
        }
        c.said.clear();
        c.lost([suspect])
    };
    assert_eq!(call(2, 2, true), silos([2]));
    assert_eq!(call(2, 2, false), silos([]), "it had said what it knew");
    assert_eq!(call(5, 41, true), silos([]), "five can say enough");
}

/// Of three Active silos two are gone; while this one calls, somebody else ends one of them. Now the
/// Joining silo counts, which was not asked.
#[test]
fn a_call_that_left_out_those_who_count_now_does_not_hold_back_the_next_one() {
    let due_soon = |dies: bool| {
        let rows = |third: SiloStatus| {
            let all = [
                (1, SiloStatus::Active),
                (2, SiloStatus::Active),
                (3, third),
                (40, SiloStatus::Joining),
            ];
            all.map(|(n, status)| entry(silo(n), status)).to_vec()
        };
        let mut c = Calling::with_rows(rows(SiloStatus::Active)).crash([2, 3]);
        // The waits between calls have grown.
        for _ in 0..5 {
            pass_time(&mut c.ctx, secs(40));
            assert_eq!(c.lost([2, 3]), silos([]));
            c.ctx.timers.clear(Timer::Standoff);
        }
        pass_time(&mut c.ctx, secs(80));
        c.start([2, 3]);
        c.deliver();
        assert!(!c.asked.contains(&silo(40)));
        if dies {
            believe(&mut c.ctx, snapshot(6, rows(SiloStatus::Dead)));
        }
        assert_eq!(c.end().len(), 0);
        pass_time(&mut c.ctx, secs(5));
        c.roll_call.is_due(&c.ctx, &silo(2), Expiry::No)
    };
    assert!(!due_soon(false));
    assert!(due_soon(true));
}

#[test]
fn those_who_waited_for_one_call_begin_one_after_the_other() {
    let waits = |random: usize| {
        let mut c = Calling::new(9);
        for _ in 0..random {
            c.ctx.random();
        }
        c.roll_call.held.on_call(&mut c.ctx, silo(2), ms(1_000));
        c.roll_call.held.on_call(&mut c.ctx, silo(3), ms(1_000));
        c.roll_call.wake(&mut c.ctx);
        c.ctx.timers.next().unwrap().since(c.ctx.now.mono)
    };
    let mut times: Vec<Duration> = (0..20).map(waits).collect();
    times.sort();
    times.dedup();
    assert!(
        times.len() > 15,
        "each silo waits for a time of its own: {times:?}"
    );
    assert!(
        times.last().unwrap().saturating_sub(times[0]) > ms(60),
        "{times:?}"
    );
}

/// In a lasting fault all silos have paid for the calls so far at the same moment.
#[test]
fn those_who_have_paid_for_the_calls_so_far_begin_one_after_the_other() {
    let waits = |random: usize| {
        let mut c = Calling::new(9);
        for _ in 0..random {
            c.ctx.random();
        }
        let now = c.ctx.mono();
        for _ in 0..1_000 {
            c.ctx.expense.add(now, &c.ctx.config);
        }
        c.roll_call.held.on_call(&mut c.ctx, silo(2), ms(100));
        let told = [silo(9)];
        c.roll_call
            .standoff
            .on_result(&mut c.ctx, silo(2), &told, 5, ms(100));
        pass_time(&mut c.ctx, secs(1));
        c.roll_call.wake(&mut c.ctx);
        c.ctx.timers.next().unwrap().since(c.ctx.now.mono)
    };
    let mut times: Vec<Duration> = (0..20).map(waits).collect();
    times.sort();
    assert!(
        times[0] > secs(30),
        "the calls so far are paid for: {times:?}"
    );
    assert!(
        times.last().unwrap().saturating_sub(times[0]) > ms(60),
        "{times:?}"
    );
}

#[test]
fn a_death_ends_the_wait_for_one_silo_after_the_other() {
    let after = |random: usize| {
        let mut c = Calling::new(9);
        for _ in 0..random {
            c.ctx.random();
        }
        c.roll_call.held.follow_losses(&mut c.ctx);
        c.roll_call.held.on_call(&mut c.ctx, silo(2), ms(2_250));
        let mut rows = actives(1..=8);
        rows.push(entry(silo(9), SiloStatus::Dead));
        believe(&mut c.ctx, snapshot(6, rows));
        c.roll_call.held.follow_losses(&mut c.ctx);
        c.roll_call.wake(&mut c.ctx);
        c.ctx.timers.next().unwrap().since(c.ctx.now.mono)
    };
    let times: Vec<Duration> = (0..20).map(after).collect();
    assert!(times.iter().all(|t| *t <= ms(8 * 15)), "{times:?}");
    assert!(times.iter().any(|t| *t > ms(30)), "{times:?}");
}

#[test]
fn after_a_call_without_a_majority_the_next_waits_for_a_failure_window() {
    let mut c = Calling::new(5).split([1], &[5]);
    assert_eq!(c.lost([5]), silos([]));
    c.roll_call.standoff.clear();
    let mut waited = c.elapsed() - secs(3);
    while !c.roll_call.is_due(&c.ctx, &silo(4), Expiry::No) {
        pass_time(&mut c.ctx, ms(1));
        waited += ms(1);
    }
    let window = ms(4_500);
    assert!(
        waited >= window && waited <= window + ms(1),
        "one without a majority: a failure window, not {waited:?}"
    );
}

#[test]
fn nobody_is_lost_at_the_moment_at_which_others_come_back() {
    let call = |cut: bool| {
        let mut c = Calling::new(5).crash([5]);
        for n in 1..=4 {
            c.said.insert((silo(n), silo(5)), failed_for(secs(10)));
        }
        if cut {
            c = c.split([1], &[2, 3, 4]);
        }
        c.start([5]);
        let began = c.ctx.now.mono;
        c.deliver();
        pass_time(&mut c.ctx, ms(2_000));
        // The network is up again. The next questions reach the others, who have missed the suspect.
        c.cut.clear();
        assert_eq!(c.end().len(), 1);
        c.ctx.now.mono.since(began)
    };
    assert_eq!(call(false), ms(2_000));
    let took = call(true);
    assert!(
        took >= ms(2_000 + 1_500),
        "{took:?}: they came back after 2 s"
    );
}

/// A network that is away for a while: all have missed each other when the call begins, and one is far.
#[test]
fn a_suspect_has_the_time_of_a_probe_to_answer_the_call() {
    let mut c = Calling::new(5).crash([5]);
    for n in 1..=4 {
        c.said.insert((silo(n), silo(5)), failed_for(secs(60)));
    }
    assert_eq!(c.lost([5]), silos([5]));
    assert_eq!(c.elapsed(), ms(3_000 + 1_500));
}

#[test]
fn a_late_answer_to_the_last_call_is_a_sign_of_life() {
    let mut c = Calling::new(5).crash([5]);
    for n in 1..=4 {
        c.said.insert((silo(n), silo(5)), failed_for(secs(10)));
    }
    c.start([5]);
    c.deliver();
    let began = c.ctx.now.mono;
    let call = c.call;
    assert_eq!(c.end().len(), 1);
    let mut answer = |call| c.roll_call.on_answer(&c.ctx, silo(5), call, &[], &[]);
    assert_eq!(answer(call), Some(began));
    assert_eq!(answer(call ^ 1), None);
}

#[test]
fn nobody_is_lost_before_what_came_during_a_stall_is_read() {
    let call = |stalls: bool| {
        let mut c = Calling::new(5).crash([5]);
        for n in 1..=4 {
            c.said.insert((silo(n), silo(5)), failed_for(secs(10)));
        }
        c.start([5]);
        c.deliver();
        // The call is about to end, and this silo stands still.
        pass_time(&mut c.ctx, ms(1_500));
        if stalls {
            c.roll_call.on_stall(&c.ctx);
        }
        // It asks once more, and all answer at once.
        let at_once = c.poll().len() + c.poll().len();
        (at_once, at_once + c.end().len())
    };
    assert_eq!(call(false), (1, 1));
    assert_eq!(call(true), (0, 1));
}

#[test]
fn stale_silos_that_are_silent_do_not_end_the_calls() {
    let rows = (1..=3).zip(actives([1, 2, 3])).map(led);
    let joining = [4, 5, 6].map(|n| entry(silo(n), SiloStatus::Joining));
    let mut c = Calling::with_rows(rows.chain(joining).collect()).crash([4, 5, 6]);
    c.stale = silos([4, 5, 6]);
    // The others are too unwell to judge, now.
    for (by, of) in [2, 3]
        .into_iter()
        .flat_map(|by| [4, 5, 6].map(|of| (by, of)))
    {
        c.said.insert((silo(by), silo(of)), Finding::Unknown);
    }
    assert_eq!(c.lost([4, 5, 6]), silos([]));
    pass_time(&mut c.ctx, secs(100));
    let due = c.roll_call.is_due(&c.ctx, &silo(4), Expiry::Stale);
    assert!(
        due,
        "although the view is the same, and none of them answers"
    );
}

#[test]
fn a_late_word_puts_off_the_death_of_a_stale_silo_and_no_more() {
    let mut c = Calling::new(4).crash([4]);
    c.stale = silos([4]);
    for n in 1..=3 {
        // The call is the first message that it leaves unanswered.
        c.said.insert((silo(n), silo(4)), failed_for(secs(0)));
    }
    c.start([4]);
    c.go_on_for(ms(2_500));
    c.said.insert((silo(2), silo(4)), Finding::Reached);
    let lost: Silos = c.end().into_iter().map(|v| v.silo).collect();
    assert_eq!(lost, silos([4]));
    // It said so in the second round, and the suspect answered a timeout before that at the earliest.
    assert_eq!(c.elapsed(), ms(3_000 + 1_500 + 4_500));
}

#[test]
fn a_call_waits_for_a_silence_that_began_anew_late() {
    let mut c = Calling::new(9).crash([9]);
    c.cut.insert((silo(2), silo(1)));
    c.start([9]);
    c.go_on_for(ms(1_400));
    // Silo 2 says that it has just heard it, and shortly before the end, that it reaches it.
    let Finding::Failed { consent, .. } = failed_for(secs(0)) else {
        panic!()
    };
    let heard = Finding::Failed {
        silent_ms: 0,
        heard_ms: Some(0),
        refused: false,
        consent,
    };
    c.say(2, 9, heard);
    c.go_on_for(ms(4_300));
    c.say(2, 9, Finding::Reached);
    let lost: Silos = c.end().into_iter().map(|v| v.silo).collect();
    assert_eq!(lost, silos([9]));
    assert!(c.elapsed() > ms(3_000 + 7_500), "{:?}", c.elapsed());
}
