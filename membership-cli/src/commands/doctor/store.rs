//! What the store does with writes: compares versions, and keeps what is written.

use membership_core::{
    ClusterName, CommitId, CommitOutcome, CommitRequest, Heartbeat, HeartbeatWrite,
    InitializeRequest, InstanceId, MembershipEntry, MembershipTable, RowChange, SharedSettings,
    SiloAddress, Snapshot, TableError, TableErrorKind, TableExt, TableId, VersionToken,
};

use super::{Finding, report};
use crate::clock;
use crate::session::{Session, TableArgs};

/// Whether the store takes this user's writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Writes {
    /// A scratch cluster was made, written, read and removed.
    Proven,
    /// This user may not make a scratch cluster: nothing is known about the silos' writes.
    Unknown,
    /// The store refuses or loses writes.
    Failed,
}

/// Sends a commit that must conflict, because its token is one version old. A store that refuses it
/// for another reason reports that reason.
pub(super) async fn compares(
    table: &dyn MembershipTable,
    now: &Snapshot,
    session: &mut Session,
) -> usize {
    let row = &now.version_row;
    let Some(before) = row.version.checked_sub(1) else {
        report(
            session,
            Finding::Note,
            "compares",
            "the table has no commit yet, so there is no old version to try",
        );
        return 0;
    };
    let id = row.record(before).map_or(CommitId::new(0), |r| r.id);
    let expected = VersionToken::new(row.table_id, before, id, now.token.store());
    let changes = vec![RowChange::Remove("doctor".to_owned())];
    let request = CommitRequest::of_changes(expected, CommitId::new(clock::random()), changes);
    match table.commit(&request).await {
        Ok(CommitOutcome::Conflict(_)) => {
            report(
                session,
                Finding::Good,
                "compares",
                "a commit on an old version is refused",
            );
            0
        }
        Ok(_) => {
            report(
                session,
                Finding::Bad,
                "compares",
                "the store accepted a stale commit: its compare-and-swap does not work",
            );
            1
        }
        Err(error) => {
            report(session, Finding::Bad, "permitted", &cannot_write(&error));
            1
        }
    }
}

fn cannot_write(error: &TableError) -> String {
    match error.kind() {
        TableErrorKind::PermissionDenied => format!("to read, but not to write: {error}"),
        _ => format!("a commit fails: {error}"),
    }
}

/// Makes a scratch cluster in the same store, commits a row, writes a heartbeat, reads both, and
/// removes the cluster. A refused old commit alone proves nothing: a store that is full, or whose
/// user may only read, refuses it as well.
pub(super) async fn writes(args: &TableArgs, session: &mut Session) -> Writes {
    let name = format!("doctor-{:032x}", clock::random());
    let Ok(scratch) = ClusterName::new(args.cluster.service(), name) else {
        return Writes::Unknown;
    };
    let (finding, writes, text) = match session.connect(&args.store.table, &scratch).await {
        Err(failure) => (Finding::Note, Writes::Unknown, not_known(&failure.message)),
        Ok(table) => {
            let tried = try_writing(table.as_ref()).await;
            let removed = table.delete().await;
            match (tried, removed) {
                (Ok(()), Ok(())) => {
                    let text = "to read and to write: a scratch cluster was written and removed";
                    (Finding::Good, Writes::Proven, text.to_owned())
                }
                (Ok(()), Err(error)) => {
                    let text = format!(
                        "to write, but the scratch cluster {scratch} could not be removed: {error}; \
                         remove it with `membership delete`"
                    );
                    (Finding::Note, Writes::Proven, text)
                }
                (Err(error), _) if error.kind() == TableErrorKind::PermissionDenied => {
                    let text = not_known(&error.to_string());
                    (Finding::Note, Writes::Unknown, text)
                }
                (Err(error), _) => {
                    let text = format!("the store does not take writes: {error}");
                    (Finding::Bad, Writes::Failed, text)
                }
            }
        }
    };
    report(session, finding, "permitted", &text);
    writes
}

fn not_known(why: &str) -> String {
    format!("to read; not known whether to write, because a scratch cluster is refused: {why}")
}

async fn try_writing(table: &dyn MembershipTable) -> Result<(), TableError> {
    let id = TableId::new(clock::random());
    let settings = SharedSettings::default();
    table
        .initialize(&InitializeRequest::new(id, settings, clock::random_key()))
        .await?;
    let (now, _) = table.read_all().await?;
    let silo = SiloAddress::new([127, 0, 0, 1].into(), 1, 1);
    let row = MembershipEntry::new(silo, InstanceId::new(clock::random()), clock::wall());
    let commit = CommitId::new(clock::random());
    let request = CommitRequest::new(now.token, commit, None, [row], [], []);
    let unexpected = |what: &str| {
        TableError::new(
            TableErrorKind::Damaged,
            membership_core::Operation::Commit,
            table.store(),
            format!("{what} in a cluster that nobody else uses"),
        )
    };
    match table.commit(&request).await? {
        CommitOutcome::Committed(_) => {}
        _ => return Err(unexpected("a commit conflicts")),
    }
    let heartbeat = Heartbeat {
        counter: 1,
        at: clock::wall(),
    };
    table
        .update_i_am_alive(&HeartbeatWrite::Silo { silo, heartbeat })
        .await?;
    let (written, heartbeats) = table.read_all().await?;
    if written.rows.get(&silo).is_none() || heartbeats.counter(&silo) != 1 {
        return Err(unexpected("what was acknowledged cannot be read"));
    }
    Ok(())
}
