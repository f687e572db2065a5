//! Which silos may vote, which votes count, and how many are needed.

mod rows;

use super::*;
use membership_core::intent::{fresh_votes, needed_votes};

fn accused(address: SiloAddress, votes: impl IntoIterator<Item = Suspicion>) -> MembershipEntry {
    let mut e = entry(address, SiloStatus::Active);
    e.suspicions = votes.into_iter().collect();
    e
}

#[test]
fn the_second_vote_kills_and_the_first_is_kept() {
    let t = table(actives(1..=5));
    let first = run(&t, &[suspect(silo(1), silo(5))]);
    assert_eq!(first.answers, [DONE]);
    assert_eq!(
        (cause(&first, silo(5)), first.updates[0].suspicions.len()),
        (None, 1)
    );
    let t = after(&t, &first, &LIMITS);
    let second = run(&t, &[suspect(silo(2), silo(5))]);
    let death = second.updates[0].death.clone().unwrap();
    assert_eq!(
        (death.cause, death.version, death.at, death.by),
        (CauseOfDeath::Voted, 11, NOW.wall, Some(silo(2)))
    );
    let accusers: Vec<_> = second.updates[0]
        .suspicions
        .iter()
        .map(|s| s.accuser)
        .collect();
    assert_eq!(accusers, [silo(1), silo(2)]);
}

#[test]
fn two_votes_of_one_batch_are_one_change_of_the_row() {
    let t = table(actives(1..=5));
    let applied = run(
        &t,
        &[
            suspect(silo(1), silo(5)),
            suspect(silo(2), silo(5)),
            suspect(silo(3), silo(5)),
        ],
    );
    assert_eq!(applied.answers, [DONE, DONE, Answer::Moot]);
    assert_eq!(
        (applied.updates.len(), cause(&applied, silo(5))),
        (1, Some(CauseOfDeath::Voted))
    );
}

#[test]
fn a_consent_is_written_by_the_silo_that_requested_the_probe() {
    let t = table(actives(1..=5));
    let mut consent = vote(silo(2));
    consent.evidence.via = Some(silo(1));
    let votes = vec![consent.clone(), vote(silo(1))];
    let applied = run(&t, &[accuse(silo(1), silo(5), votes)]);
    assert_eq!(cause(&applied, silo(5)), Some(CauseOfDeath::Voted));
    // A vote that another silo wrote without a request does not count.
    consent.evidence.via = None;
    let votes = vec![consent.clone(), vote(silo(1))];
    let applied = run(&t, &[accuse(silo(1), silo(5), votes)]);
    assert_eq!(
        (
            cause(&applied, silo(5)),
            applied.updates[0].suspicions.len()
        ),
        (None, 1)
    );
    let applied = run(&t, &[accuse(silo(1), silo(5), vec![consent])]);
    assert_eq!(applied.answers, [refused(Refusal::NotAVoter(silo(2)))]);
}

#[test]
fn accusers_do_not_kill_each_other() {
    // One vote suffices where only two silos are live.
    let t = table(actives(1..=4));
    let mut observed = Observed::default();
    observed.stale = [silo(3), silo(4)].into();
    let both = [suspect(silo(3), silo(4)), suspect(silo(4), silo(3))];
    let applied = run_seen(&t, &observed, &both);
    assert_eq!(
        applied.answers,
        [DONE, refused(Refusal::NotAVoter(silo(4)))]
    );
    assert_eq!(
        (cause(&applied, silo(4)), applied.updates.len()),
        (Some(CauseOfDeath::Voted), 1)
    );
    // Stored votes of a silo that dies in the same commit do not count either.
    let mut t = actives(1..=5);
    t[0] = accused(silo(1), [vote(silo(3))]);
    t[1] = accused(silo(2), [vote(silo(1))]);
    let applied = run(
        &table(t),
        &[suspect(silo(4), silo(1)), suspect(silo(5), silo(2))],
    );
    assert_eq!(
        (cause(&applied, silo(1)), cause(&applied, silo(2))),
        (Some(CauseOfDeath::Voted), None)
    );
    assert_eq!(applied.answers, [DONE, DONE]);
}

#[test]
fn accusers_at_one_endpoint_count_once() {
    let mut t = actives(1..=5);
    t[4] = accused(silo(5), [vote(silo(1))]);
    t.push(entry(silo_at(1, 2), SiloStatus::Active));
    let t = table(t);
    let applied = run(&t, &[suspect(silo_at(1, 2), silo(5))]);
    assert_eq!(
        (
            cause(&applied, silo(5)),
            applied.updates[0].suspicions.len()
        ),
        (None, 2)
    );
    assert_eq!(
        fresh_votes(
            &after(&t, &applied, &LIMITS),
            &silo(5),
            &Observed::default(),
            NOW
        )
        .len(),
        1
    );
}

#[test]
fn only_active_silos_vote_and_never_against_themselves() {
    use SiloStatus::{Joining, ShuttingDown, Stopping};
    for status in [Joining, ShuttingDown, Stopping] {
        let mut t = actives(1..=4);
        t.push(entry(silo(7), status));
        assert_eq!(
            run(&table(t), &[suspect(silo(7), silo(1))]).answers,
            [refused(Refusal::NotAVoter(silo(7)))]
        );
    }
    // This also holds when no other silo is left: Joining silos become Active first.
    let t = table([entry(silo(1), Joining), entry(silo(2), Joining)]);
    assert_eq!(
        run(&t, &[suspect(silo(1), silo(2))]).answers,
        [refused(Refusal::NotAVoter(silo(1)))]
    );
    let t = table(actives(1..=3));
    assert_eq!(
        run(&t, &[suspect(silo(1), silo(1))]).answers,
        [refused(Refusal::NotAVoter(silo(1)))]
    );
    assert_eq!(
        run(&t, &[suspect(silo(9), silo(1))]).answers,
        [refused(Refusal::NotAVoter(silo(9)))]
    );
    assert_eq!(
        run(&t, &[suspect(silo(1), silo(9))]).answers,
        [refused(Refusal::NoSuchSilo(silo(9)))]
    );
    let mut person = suspect(silo(2), silo(1));
    person.author = None;
    assert_eq!(
        run(&t, &[person]).answers,
        [refused(Refusal::NotAVoter(silo(2)))]
    );
}

#[test]
fn a_vote_without_new_information_is_moot() {
    let old = NOW.wall.minus(Duration::from_secs(15));
    let mut t = actives(1..=5);
    t[4] = accused(silo(5), [vote_at(silo(1), old)]);
    let t = table(t);
    let against = |at| accuse(silo(1), silo(5), vec![vote_at(silo(1), at)]);
    assert_eq!(run(&t, &[against(old)]).answers, [Answer::Moot]);
    assert_eq!(
        run(&t, &[against(old.minus(Duration::from_secs(1)))]).answers,
        [Answer::Moot]
    );
    let renewed = run(&t, &[against(NOW.wall)]);
    assert_eq!(renewed.updates[0].suspicions, [vote(silo(1))]);
    let empty = accuse(silo(1), silo(5), vec![]);
    assert_eq!(run(&t, &[empty]).answers, [Answer::Moot]);
}

#[test]
fn a_vote_kills_when_fewer_are_needed_than_before() {
    let mut t = actives(1..=3);
    t[2] = accused(silo(3), [vote(silo(1))]);
    let mut observed = Observed::default();
    observed.stale = [silo(3)].into();
    let applied = run_seen(&table(t.clone()), &observed, &[suspect(silo(1), silo(3))]);
    assert_eq!(cause(&applied, silo(3)), Some(CauseOfDeath::Voted));
    // A silo that answered is not stale.
    observed.answered = [silo(3)].into();
    assert_eq!(
        run_seen(&table(t), &observed, &[suspect(silo(1), silo(3))]).answers,
        [Answer::Moot]
    );
}

#[test]
fn the_deaths_of_a_commit_make_no_other_death_cheaper() {
    let mut rows = actives(1..=3);
    rows.push(entry(silo(4), SiloStatus::Joining));
    let t = table(rows);
    let batch = [
        suspect(silo(1), silo(3)),
        suspect(silo(2), silo(3)),
        suspect(silo(1), silo(4)),
    ];
    let applied = run(&t, &batch);
    assert_eq!(cause(&applied, silo(3)), Some(CauseOfDeath::Voted));
    assert_eq!(cause(&applied, silo(4)), None);
    // The next commit has only two live silos, of which one suffices.
    let t = after(&t, &applied, &LIMITS);
    let next = run(&t, &[suspect(silo(2), silo(4))]);
    assert_eq!(cause(&next, silo(4)), Some(CauseOfDeath::Voted));
}

#[test]
fn a_vote_counts_when_clocks_differ() {
    let hour = Duration::from_secs(3600);
    for at in [NOW.wall.minus(hour), NOW.wall.plus(hour)] {
        let mut t = actives(1..=5);
        t[4] = accused(silo(5), [vote_at(silo(1), at)]);
        let t = table(t);
        let seen = |age: Duration, at| {
            let first_seen = [((silo(5), silo(1)), (at, NOW.mono.minus(age)))].into();
            {
                let mut observed = Observed::default();
                observed.first_seen = first_seen;
                observed
            }
        };
        let kills = |observed: &Observed| {
            cause(
                &run_seen(&t, observed, &[suspect(silo(2), silo(5))]),
                silo(5),
            )
            .is_some()
        };
        assert!(!kills(&Observed::default()), "nobody knows how old it is");
        assert!(
            kills(&seen(Duration::from_secs(120), at)),
            "I saw it appear"
        );
        assert!(
            !kills(&seen(Duration::from_secs(121), at)),
            "I saw it appear long ago"
        );
        assert!(
            !kills(&seen(Duration::from_secs(1), NOW.wall)),
            "I saw another one appear"
        );
        // A vote of this commit is fresh, whatever the accuser's clock says.
        let skewed = accuse(silo(2), silo(5), vec![vote_at(silo(2), at)]);
        let applied = run_seen(&t, &seen(Duration::from_secs(1), at), &[skewed]);
        assert!(cause(&applied, silo(5)).is_some());
    }
    for (age, kills) in [(120, true), (121, false)] {
        for at in [
            NOW.wall.minus(Duration::from_secs(age)),
            NOW.wall.plus(Duration::from_secs(age)),
        ] {
            let mut t = actives(1..=5);
            t[4] = accused(silo(5), [vote_at(silo(1), at)]);
            assert_eq!(
                cause(&run(&table(t), &[suspect(silo(2), silo(5))]), silo(5)).is_some(),
                kills
            );
        }
    }
}

#[test]
fn a_silo_votes_again_after_its_clock_was_set_back() {
    let mut t = actives(1..=5);
    t[4] = accused(
        silo(5),
        [vote_at(silo(1), NOW.wall.plus(Duration::from_secs(7200)))],
    );
    let t = table(t);
    let applied = run(&t, &[suspect(silo(1), silo(5))]);
    assert_eq!(
        (
            applied.answers[0].clone(),
            &applied.updates[0].suspicions[..]
        ),
        (DONE, &[vote(silo(1))][..])
    );
    assert_eq!(
        run(&after(&t, &applied, &LIMITS), &[suspect(silo(1), silo(5))]).answers,
        [Answer::Moot]
    );
}

/// P14: else one of two silos that cannot be reached keeps others out for as long.
#[test]
fn a_challenge_gives_way_to_a_vote_although_the_clock_was_set_back() {
    for ahead in [0, 1, 60, 119] {
        let mut challenge = vote_at(silo(1), NOW.wall.plus(Duration::from_secs(ahead)));
        challenge.reason = SuspicionReason::Challenge;
        let mut t = actives(1..=5);
        t[4] = accused(silo(5), [challenge.clone()]);
        let t = table(t);
        let applied = run(&t, &[suspect(silo(1), silo(5))]);
        assert_eq!(applied.answers, [DONE], "{ahead}");
        assert_eq!(applied.updates[0].suspicions, [vote(silo(1))]);
        // No challenge takes the place of a later vote.
        let t = after(&t, &applied, &LIMITS);
        challenge.at = NOW.wall.minus(Duration::from_secs(1));
        let again = run(&t, &[accuse(silo(1), silo(5), vec![challenge])]);
        assert_eq!(again.answers, [Answer::Moot]);
    }
}

#[test]
fn votes_for_stuck_are_counted_separately() {
    let stuck = |accuser, suspect| {
        let mut v = vote(accuser);
        v.reason = SuspicionReason::Stuck;
        accuse(accuser, suspect, vec![v])
    };
    let mut t = actives(1..=4);
    t.push(entry(silo(5), SiloStatus::Joining));
    let t = table(t);
    assert_eq!(
        cause(
            &run(&t, &[stuck(silo(1), silo(5)), stuck(silo(2), silo(5))]),
            silo(5)
        ),
        Some(CauseOfDeath::Stuck)
    );
    assert_eq!(
        cause(
            &run(&t, &[stuck(silo(1), silo(5)), suspect(silo(2), silo(5))]),
            silo(5)
        ),
        None
    );
    let mixed = [
        stuck(silo(1), silo(5)),
        suspect(silo(2), silo(5)),
        suspect(silo(3), silo(5)),
    ];
    assert_eq!(cause(&run(&t, &mixed), silo(5)), Some(CauseOfDeath::Voted));
    // An Active silo is not stuck.
    assert_eq!(
        cause(
            &run(&t, &[stuck(silo(1), silo(4)), stuck(silo(2), silo(4))]),
            silo(4)
        ),
        None
    );
}

#[test]
fn needed_votes_follow_the_live_silos() {
    for (active, stale, needed) in [
        (0, 0, 1),
        (1, 0, 1),
        (2, 0, 1),
        (3, 0, 2),
        (4, 0, 2),
        (9, 0, 2),
        (4, 2, 1),
        (3, 1, 1),
        (3, 3, 1),
    ] {
        let stale = (1..=stale).map(silo).collect();
        assert_eq!(
            needed_votes(&table(actives(1..=active)), &stale),
            needed,
            "{active} Active, stale {stale:?}"
        );
    }
}
