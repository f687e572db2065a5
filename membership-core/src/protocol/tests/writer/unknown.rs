//! Commits of unknown outcome, and reads that show another table than the one they were made on.

use super::*;

#[test]
fn an_unknown_outcome_is_settled_first() {
    let lost = || Err(error(TableErrorKind::OutcomeUnknown));
    // The commit had happened.
    let (mut ctx, mut writer, call, request) = committing();
    let base = ctx.view.clone().unwrap().snapshot().clone();
    writer.on_committed(&mut ctx, call, lost());
    pass_time(&mut ctx, secs(2));
    let call = read(&mut ctx, &mut writer).unwrap();
    let outcomes = writer.on_read(
        &mut ctx,
        call,
        read_table(request.apply_to(&base, request.next_token(&[]))),
    );
    assert_eq!(answers(&outcomes), [Answer::Applied { version: 6 }]);
    assert!(
        matches!(outcomes[1], Outcome::Read { .. }),
        "first the view, then what it says of me"
    );
    // The table did not move: the same bytes are sent again.
    let (mut ctx, mut writer, call, request) = committing();
    writer.on_committed(&mut ctx, call, lost());
    pass_time(&mut ctx, secs(2));
    let call = read(&mut ctx, &mut writer).unwrap();
    writer.on_read(
        &mut ctx,
        call,
        Ok(ReadAnswer::Unchanged { heartbeats: None }),
    );
    let again = ctx.out.drain(..).find_map(|e| {
        if let Effect::Commit { call, request } = e {
            Some((call, request))
        } else {
            None
        }
    });
    let (call, again) = again.unwrap();
    assert_eq!(
        (again.attempt, again.id, &again.changes),
        (Attempt::Again, request.id, &request.changes)
    );
    // Whatever the second attempt returns, the first may have happened: nothing is reported as
    // failed.
    let outcomes = writer.on_committed(&mut ctx, call, Err(error(TableErrorKind::LimitExceeded)));
    assert_eq!(answers(&outcomes), []);
    assert!(writer.has(|a| *a == evict(2)));
}

#[test]
fn an_overtaken_commit_is_planned_anew_and_another_table_is_not_written() {
    let (mut ctx, mut writer, call, _) = committing();
    writer.on_committed(&mut ctx, call, Err(error(TableErrorKind::OutcomeUnknown)));
    pass_time(&mut ctx, secs(2));
    let call = read(&mut ctx, &mut writer).unwrap();
    let moved = snapshot(6, actives([1, 2, 3]));
    writer.on_read(&mut ctx, call, read_table(moved.clone()));
    believe(&mut ctx, moved);
    let (_, request) = commit(&mut ctx, &mut writer).unwrap();
    assert_eq!(
        (request.attempt, request.expected.version()),
        (Attempt::First, 6)
    );
    let (mut ctx, mut writer, call, _) = committing();
    writer.on_committed(&mut ctx, call, Err(error(TableErrorKind::OutcomeUnknown)));
    pass_time(&mut ctx, secs(2));
    let call = read(&mut ctx, &mut writer).unwrap();
    let key = ClusterKey::new([7; 32]);
    let mut row =
        InitializeRequest::new(TableId::new(2), SharedSettings::default(), key).version_row();
    row.version = 5;
    let other = Snapshot::new(row.token(&[]), row, Rows::new());
    writer.on_read(&mut ctx, call, read_table(other));
    assert!(
        !ctx.out.iter().any(|e| matches!(e, Effect::Commit { .. })),
        "the same version of another table"
    );
    ctx.set_table_state(TableState::Changed(crate::Discontinuity::Replaced));
    for _ in 0..100 {
        pass_time(&mut ctx, secs(60));
        writer.want_read(true);
        assert!(
            read(&mut ctx, &mut writer).is_none(),
            "a table that is not mine is left alone"
        );
    }
}

#[test]
fn votes_are_never_sent_again_unchanged() {
    let mut ctx = ctx();
    believe(&mut ctx, snapshot(5, actives([1, 2, 3])));
    let mut writer = Writer::default();
    writer.submit(&mut ctx, evict(3));
    let (call, request) = pump(&mut ctx, &mut writer, vec![suspicion(2)]).unwrap();
    assert_eq!(request.changes.len(), 2);
    writer.on_committed(&mut ctx, call, Err(error(TableErrorKind::OutcomeUnknown)));
    pass_time(&mut ctx, secs(3600));
    let call = read(&mut ctx, &mut writer).unwrap();
    writer.on_read(
        &mut ctx,
        call,
        Ok(ReadAnswer::Unchanged { heartbeats: None }),
    );
    assert!(
        !ctx.out.iter().any(|e| matches!(e, Effect::Commit { .. })),
        "an hour later it is another matter"
    );
    let (_, now) = commit(&mut ctx, &mut writer).unwrap();
    assert_eq!(
        (now.attempt, now.changes.len()),
        (Attempt::First, 1),
        "the eviction alone, on the same version"
    );
    assert!(now.id != request.id && now.expected.same_commit(&request.expected));
}

#[test]
fn a_commit_of_repeatedly_unknown_outcome_is_planned_anew() {
    let (mut ctx, mut writer, mut call, first) = committing();
    let mut ids = BTreeSet::from([first.id]);
    let mut longest = Duration::ZERO;
    for _ in 0..12 {
        writer.on_committed(&mut ctx, call, Err(error(TableErrorKind::OutcomeUnknown)));
        pass_time(&mut ctx, secs(60));
        let read = read(&mut ctx, &mut writer).unwrap();
        writer.on_read(
            &mut ctx,
            read,
            Ok(ReadAnswer::Unchanged { heartbeats: None }),
        );
        let sent = |e| {
            if let Effect::Commit { call, request } = e {
                Some((call, request))
            } else {
                None
            }
        };
        let again = ctx.out.drain(..).find_map(sent);
        let begun = ctx.mono();
        let (next, request) = again.unwrap_or_else(|| {
            loop {
                if let Some(sent) = commit(&mut ctx, &mut writer) {
                    break sent;
                }
                pass_time(&mut ctx, secs(1));
            }
        });
        longest = longest.max(ctx.mono().since(begun));
        ids.insert(request.id);
        assert!(request.expected.same_commit(&first.expected));
        call = next;
    }
    assert!(
        ids.len() > 5 && longest >= secs(20),
        "{} commits, at most {longest:?} apart",
        ids.len()
    );
}

#[test]
fn a_token_of_another_commit_proves_nothing() {
    let (mut ctx, mut writer, call, request) = committing();
    let token = crate::VersionToken::new(
        TableId::new(1),
        request.next_version(),
        CommitId::new(1),
        &[],
    );
    assert!(
        writer
            .on_committed(&mut ctx, call, Ok(CommitOutcome::Committed(token)))
            .is_empty()
    );
    assert!(writer.has(|a| *a == evict(2)));
}

/// A table that was restored may show the very version on which a commit of unknown outcome was made.
/// It is not written until it is judged, and not read all the time either.
#[test]
fn nothing_is_sent_again_to_a_table_that_shows_less() {
    for suspended in [false, true] {
        let (mut ctx, mut writer, call, _) = committing();
        writer.on_committed(&mut ctx, call, Err(error(TableErrorKind::OutcomeUnknown)));
        pass_time(&mut ctx, secs(2));
        let call = read(&mut ctx, &mut writer).unwrap();
        // A read that was abandoned has shown more meanwhile.
        believe(&mut ctx, snapshot(8, actives([1, 2, 3])));
        ctx.suspended = suspended;
        let restored = snapshot(5, actives([1, 2, 3]));
        let outcomes = writer.on_read(&mut ctx, call, read_table(restored));
        assert_eq!(answers(&outcomes), []);
        let sent = |e: &Effect| matches!(e, Effect::Commit { .. });
        assert!(!ctx.out.iter().any(sent), "suspended: {suspended}");
        assert!(read(&mut ctx, &mut writer).is_none(), "not at once");
        pass_time(&mut ctx, secs(2));
        assert!(read(&mut ctx, &mut writer).is_some());
    }
}

/// "Unchanged" is said of the version that was known when the read was sent.
#[test]
fn what_is_unchanged_since_an_older_view_confirms_no_newer_one() {
    let mut ctx = ctx();
    believe(&mut ctx, snapshot(5, actives([1, 2, 3])));
    let mut writer = Writer::default();
    writer.want_read(false);
    let call = read(&mut ctx, &mut writer).unwrap();
    // A read that was abandoned is answered.
    believe(&mut ctx, snapshot(8, actives([1, 2, 3])));
    let unchanged = Ok(ReadAnswer::Unchanged { heartbeats: None });
    let outcomes = writer.on_read(&mut ctx, call, unchanged);
    let reads = |o: &Outcome| matches!(o, Outcome::Read { .. });
    assert!(!outcomes.iter().any(reads), "{outcomes:?}");
    assert!(
        read(&mut ctx, &mut writer).is_some(),
        "it is read once more"
    );
}
