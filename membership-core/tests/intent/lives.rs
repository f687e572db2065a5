//! Join, shut down, leave, be evicted.

use super::*;

fn shut_down(address: SiloAddress, fast: bool) -> Intent {
    intent(
        address,
        Action::BeginShutdown {
            silo: address,
            fast,
        },
    )
}

#[test]
fn a_join_ends_its_predecessors_in_the_same_commit() {
    use SiloStatus::{Active, Joining, ShuttingDown, Stopping};
    for status in [Joining, Active, ShuttingDown, Stopping] {
        let t = table([
            entry(silo_at(1, 4), status),
            entry(silo(2), Active),
            died(silo_at(1, 3), CauseOfDeath::Left, Duration::ZERO),
        ]);
        let applied = run(&t, &[join(silo_at(1, 5))]);
        assert_eq!(applied.answers, [DONE]);
        assert_eq!(
            (applied.inserts[0].address, applied.inserts[0].status),
            (silo_at(1, 5), Joining)
        );
        assert_eq!(
            (cause(&applied, silo_at(1, 4)), applied.updates.len()),
            (Some(CauseOfDeath::Superseded), 1)
        );
    }
}

#[test]
fn a_join_meets_its_own_row_a_successor_or_an_invalid_row() {
    let me = silo_at(1, 5);
    assert_eq!(
        run(&table([entry(me, SiloStatus::Active)]), &[join(me)]).answers,
        [Answer::Moot]
    );
    assert_eq!(
        run(
            &table([died(me, CauseOfDeath::Left, Duration::ZERO)]),
            &[join(me)]
        )
        .answers,
        [refused(Refusal::Dead(me))]
    );
    let mut other = entry(me, SiloStatus::Joining);
    other.instance_id = InstanceId::new(99);
    assert_eq!(
        run(&table([other]), &[join(me)]).answers,
        [refused(Refusal::Superseded(me))]
    );
    for newer in [
        entry(silo_at(1, 6), SiloStatus::Active),
        died(silo_at(1, 6), CauseOfDeath::Left, Duration::ZERO),
    ] {
        assert_eq!(
            run(&table([newer]), &[join(me)]).answers,
            [refused(Refusal::Superseded(silo_at(1, 6)))]
        );
    }
    for key in ["10.0.0.1:1@5", "10.0.0.1:1@9", "10.0.0.1:1@2"] {
        let mut t = table([]);
        t.rows.insert(Row::decode(key, "{"));
        assert_eq!(
            run(&t, &[join(me)]).answers,
            [refused(Refusal::Undecodable(key.into()))]
        );
    }
    let mut t = table([]);
    t.rows.insert(Row::decode("junk", "{"));
    t.rows.insert(Row::decode("10.0.0.1:2@5", "{"));
    let mut dressed_up = entry(me, SiloStatus::Active);
    dressed_up.suspicions.push(vote(silo(2)));
    let applied = run(&t, &[intent(me, Action::Join(Box::new(dressed_up)))]);
    let new = &applied.inserts[0];
    assert_eq!(
        (new.status, new.suspicions.len(), new.active_since),
        (SiloStatus::Joining, 0, None)
    );
}

#[test]
fn of_two_joining_epochs_the_newer_one_remains() {
    for order in [[5, 6], [6, 5]] {
        let t = table([]);
        let applied = run(&t, &order.map(|epoch| join(silo_at(1, epoch))));
        let t = after(&t, &applied, &LIMITS);
        let living: Vec<_> = t
            .rows
            .entries()
            .filter(|e| e.status != SiloStatus::Dead)
            .map(|e| e.address.epoch())
            .collect();
        assert_eq!(living, [6]);
    }
}

#[test]
fn shutting_down_goes_forward_only() {
    use SiloStatus::{Active, Joining, ShuttingDown, Stopping};
    for (from, fast, to) in [
        (Joining, false, Some(ShuttingDown)),
        (Active, false, Some(ShuttingDown)),
        (Active, true, Some(Stopping)),
        (ShuttingDown, true, Some(Stopping)),
        (ShuttingDown, false, None),
        (Stopping, false, None),
        (Stopping, true, None),
    ] {
        let applied = run(&table([entry(silo(1), from)]), &[shut_down(silo(1), fast)]);
        assert_eq!(
            applied.updates.first().map(|e| e.status),
            to,
            "{from} {fast}"
        );
        assert_eq!(
            applied.answers,
            [if to.is_some() { DONE } else { Answer::Moot }]
        );
    }
    let t = table([died(silo(1), CauseOfDeath::Voted, Duration::ZERO)]);
    assert_eq!(
        run(&t, &[shut_down(silo(1), true)]).answers,
        [refused(Refusal::Dead(silo(1)))]
    );
    assert_eq!(
        run(&t, &[shut_down(silo(2), true)]).answers,
        [refused(Refusal::NoSuchSilo(silo(2)))]
    );
}

#[test]
fn leaving_and_eviction_end_any_living_silo_once() {
    use SiloStatus::{Active, Joining, ShuttingDown, Stopping};
    for status in [Joining, Active, ShuttingDown, Stopping] {
        let t = table([entry(silo(1), status)]);
        let left = run(&t, &[leave(silo(1))]);
        assert_eq!(cause(&left, silo(1)), Some(CauseOfDeath::Left));
        let t_left = after(&t, &left, &LIMITS);
        assert_eq!(
            run(&t_left, &[leave(silo(1)), evict(silo(1))]).answers,
            [Answer::Moot, Answer::Moot]
        );
        let evicted = run(&t, &[evict(silo(1))]);
        assert_eq!(
            cause(&evicted, silo(1)),
            Some(CauseOfDeath::Evicted {
                by: "ops".into(),
                reason: "test".into()
            })
        );
        let t_evicted = after(&t, &evicted, &LIMITS);
        assert_eq!(
            run(&t_evicted, &[leave(silo(1)), evict(silo(1))]).answers,
            [refused(Refusal::Dead(silo(1))), Answer::Moot]
        );
    }
    assert_eq!(
        run(&table([]), &[leave(silo(1)), evict(silo(1))]).answers,
        [Answer::Moot, refused(Refusal::NoSuchSilo(silo(1)))]
    );
    let mut t = table([]);
    t.rows.insert(Row::decode("10.0.0.1:1@1", "{"));
    let undecodable = || refused(Refusal::Undecodable("10.0.0.1:1@1".into()));
    assert_eq!(
        run(&t, &[leave(silo(1)), evict(silo(1))]).answers,
        [undecodable(), undecodable()]
    );
}

#[test]
fn a_join_removes_the_rows_of_earlier_tries_that_were_voted_out() {
    let long = Duration::from_secs(60);
    let never_active = |epoch, cause| died(silo_at(7, epoch), cause, long);
    let mut was_active = never_active(1, CauseOfDeath::Voted);
    was_active.active_since = Some(2);
    let t = table([
        entry(silo(1), SiloStatus::Active),
        was_active,
        never_active(2, CauseOfDeath::Left),
        never_active(3, CauseOfDeath::Voted),
        never_active(4, CauseOfDeath::Stuck),
        died(silo_at(8, 3), CauseOfDeath::Voted, long),
    ]);
    let applied = run(&t, &[join(silo_at(7, 5))]);
    assert_eq!(applied.answers, [DONE]);
    assert_eq!(applied.removes, ["10.0.0.1:7@3", "10.0.0.1:7@4"]);
    // One that dies in the same commit is seen Dead in a version before it goes.
    let t = table([
        entry(silo(1), SiloStatus::Active),
        entry(silo(2), SiloStatus::Active),
        entry(silo_at(7, 3), SiloStatus::Joining),
    ]);
    let batch = [
        suspect(silo(1), silo_at(7, 3)),
        suspect(silo(2), silo_at(7, 3)),
        join(silo_at(7, 5)),
    ];
    let applied = run(&t, &batch);
    assert!(applied.removes.is_empty(), "{:?}", applied.removes);
}
