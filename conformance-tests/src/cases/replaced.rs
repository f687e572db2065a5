//! Tables that were replaced or rolled back while clients knew them. T16.

use std::time::Duration;

use membership_core::{
    CommitOutcome, CommitRequest, Discontinuity, NextStep, ReadRequest, SiloAddress, TableError,
    TableErrorKind, VersionToken, check_snapshot,
};
use tokio::time::Instant;

use crate::Stop;
use crate::case::{
    Case, Cx, Table, Verdict, case, commit, must, read, refused, same, unknown_answer,
};

pub(super) const CASES: &[Case] = &[
    case!(a_wiped_table_is_reported: T16),
    case!(a_table_made_anew_is_reported: T16),
    case!(a_table_rolled_back_is_reported: T16),
    case!(a_table_rolled_back_and_forward_is_reported: T16),
    case!(a_table_rolled_back_far_is_detected_by_its_rows: T16),
];

/// Last, because nothing is left of the store.
pub(super) const EMPTIED: &[Case] = &[case!(a_store_made_anew_is_reported: T16)];

/// How many versions of a new table are read by clients that know only the old one. More than the
/// old table has, so that a revision or tag that begins anew meets the one that a client knows.
const VERSIONS: usize = 6;

/// Two clients that have read the table, and nothing since.
struct Stale {
    /// It reads first. A client that remembers what it read must not take the table for unchanged.
    reader: Table,
    /// It commits first. A client that commits on what it remembers must not be served.
    committer: Table,
}

impl Stale {
    /// One pair for each of so many versions of the table that comes.
    async fn pairs(cx: &Cx, table: &Table, versions: usize) -> Result<Vec<Self>, Stop> {
        let mut pairs = Vec::new();
        for _ in 0..versions {
            let (reader, committer) = (cx.another(table).await?, cx.another(table).await?);
            read(&reader).await?;
            read(&committer).await?;
            pairs.push(Self { reader, committer });
        }
        Ok(pairs)
    }

    /// The committer's first request since is a commit on the version that it knows: it must not
    /// land.
    async fn cannot_commit(&self, cx: &Cx, known: &VersionToken) -> Verdict {
        let before = read(&cx.another(&self.committer).await?).await?;
        no_commit_lands(&self.committer, &cx.insert(known, [cx.entry()])).await?;
        let after = read(&cx.another(&self.committer).await?).await?;
        same("a refused commit", &before, &after)
    }

    /// The same when the committer's connections lead to a server that is gone: the commit is sent
    /// until it is answered.
    async fn is_cut_off(&self, cx: &Cx, known: &VersionToken) -> Verdict {
        let before = read(&cx.another(&self.committer).await?).await?;
        let mut request = cx.insert(known, [cx.entry()]);
        let patience = Patience::new();
        let answer = loop {
            let answer = self.committer.commit(&request).await;
            let next = answer.as_ref().err().map(TableError::next_step);
            if !patience.asks_again(next).await {
                break answer;
            }
            if next == Some(NextStep::FindOut) {
                request = request.again();
            }
        };
        does_not_land(known, answer)?;
        let after = read(&cx.another(&self.committer).await?).await?;
        same("a refused commit", &before, &after)
    }

    /// The reader's first answer since, whatever it is.
    async fn is_answered(&self, known: &VersionToken) {
        let request = ReadRequest::all().with_known(known.clone());
        let patience = Patience::new();
        while let Err(e) = self.reader.read(&request).await
            && patience.asks_again(Some(e.next_step())).await
        {}
    }
}

/// How long a client may take to be served again after the store was made anew.
struct Patience(Instant);

impl Patience {
    fn new() -> Self {
        Self(Instant::now() + Duration::from_secs(60))
    }

    /// Whether an answer after which this is the next step is none yet. Waits a moment if so.
    async fn asks_again(&self, next: Option<NextStep>) -> bool {
        let asks = next.is_some_and(|it| it != NextStep::GiveUp) && Instant::now() < self.0;
        if asks {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        asks
    }
}

/// Checks that reads with this known version report it, and that no commit on it lands.
async fn is_reported(
    cx: &Cx,
    table: &Table,
    known: &VersionToken,
    silo: &SiloAddress,
    kind: TableErrorKind,
) -> Verdict {
    let before = read(&cx.another(table).await?).await.ok();
    for barrier in [false, true] {
        let request = ReadRequest::all()
            .with_known(known.clone())
            .with_barrier(barrier);
        refused("read", table.read(&request).await, &[kind])?;
    }
    refused("read_row", table.read_row(silo, Some(known)).await, &[kind])?;
    let insert = cx.insert(known, [cx.entry()]);
    for request in [
        insert.clone(),
        insert.again(),
        cx.remove(known, [silo.row_key()]),
    ] {
        no_commit_lands(table, &request).await?;
    }
    match (before, read(&cx.another(table).await?).await.ok()) {
        (Some(before), Some(after)) => same("refused commits", &before, &after),
        (None, None) => Ok(()),
        (before, after) => Err(Stop::failed(format!(
            "refused commits turned {before:?} into {after:?}"
        ))),
    }
}

async fn no_commit_lands(table: &Table, request: &CommitRequest) -> Verdict {
    does_not_land(&request.expected, table.commit(request).await)
}

fn does_not_land(expected: &VersionToken, answer: Result<CommitOutcome, TableError>) -> Verdict {
    let allowed = [
        TableErrorKind::TableReplaced,
        TableErrorKind::TableRolledBack,
    ];
    match answer {
        Ok(CommitOutcome::Conflict(_)) => Ok(()),
        Ok(CommitOutcome::Committed(token)) => Err(Stop::failed(format!(
            "a commit on {expected:?} landed as {token:?}"
        ))),
        Ok(other) => Err(unknown_answer(&other)),
        Err(e) if allowed.contains(&e.kind()) => Ok(()),
        Err(e) => Err(Stop::failed(format!(
            "a commit on {expected:?} is answered with {:?}: {e}",
            e.kind()
        ))),
    }
}

/// A table at version 3 with three rows, and the token of each version.
async fn begin(cx: &Cx) -> Result<(Table, Vec<VersionToken>, SiloAddress), Stop> {
    let table = cx.table().await?;
    let first = cx.entry();
    let mut tokens = vec![read(&table).await?.0.token];
    for entry in [first.clone(), cx.entry(), cx.entry()] {
        let token = commit(&table, &cx.insert(&tokens[tokens.len() - 1], [entry])).await?;
        tokens.push(token);
    }
    Ok((table, tokens, first.address))
}

async fn a_wiped_table_is_reported(cx: Cx) -> Verdict {
    let (table, tokens, silo) = begin(&cx).await?;
    cx.backend().wipe(table.cluster()).await?;
    for token in &tokens {
        is_reported(&cx, &table, token, &silo, TableErrorKind::TableReplaced).await?;
    }
    let fresh = cx.another(&table).await?;
    refused(
        "read by a new client",
        fresh.read(&ReadRequest::all()).await,
        &[TableErrorKind::NotInitialized],
    )?;
    Ok(())
}

async fn a_table_made_anew_is_reported(cx: Cx) -> Verdict {
    let (table, tokens, silo) = begin(&cx).await?;
    let stale = Stale::pairs(&cx, &table, VERSIONS).await?;
    cx.backend().wipe(table.cluster()).await?;
    let fresh = cx.another(&table).await?;
    fresh.initialize(&cx.initialize_request()).await?;
    let mut token = read(&fresh).await?.0.token;
    for pair in &stale {
        pair.cannot_commit(&cx, &tokens[tokens.len() - 1]).await?;
        // The newest first: the reader still remembers it.
        for known in tokens.iter().rev() {
            let replaced = TableErrorKind::TableReplaced;
            is_reported(&cx, &pair.reader, known, &silo, replaced).await?;
        }
        token = commit(&fresh, &cx.insert(&token, [cx.entry()])).await?;
    }
    Ok(())
}

/// The store itself is made anew, twice: the first time it begins with the requests of a table, the
/// second time with the same requests of another one. So each revision of the other table is one
/// that a client of the first table knows, whether the store counts for a document or for all.
async fn a_store_made_anew_is_reported(cx: Cx) -> Verdict {
    cx.backend().recreate().await?;
    let (table, tokens, silo) = begin(&cx).await?;
    let newest = tokens[tokens.len() - 1].clone();
    let stale = Stale::pairs(&cx, &table, VERSIONS).await?;
    cx.backend().recreate().await?;
    let fresh = cx.another(&table).await?;
    let initialize = cx.initialize_request();
    let patience = Patience::new();
    while let Err(e) = fresh.initialize(&initialize).await {
        if !patience.asks_again(Some(e.next_step())).await {
            return Err(e.into());
        }
    }
    let mut token = read(&fresh).await?.0.token;
    for pair in &stale {
        pair.is_cut_off(&cx, &newest).await?;
        pair.is_answered(&newest).await;
        for known in tokens.iter().rev() {
            let replaced = TableErrorKind::TableReplaced;
            is_reported(&cx, &pair.reader, known, &silo, replaced).await?;
        }
        token = commit(&fresh, &cx.insert(&token, [cx.entry()])).await?;
    }
    Ok(())
}

async fn a_table_rolled_back_is_reported(cx: Cx) -> Verdict {
    let (table, _, silo) = begin(&cx).await?;
    let saved = cx.backend().save(table.cluster()).await?;
    let at_save = read(&table).await?;
    let token = commit(&table, &cx.insert(&at_save.0.token, [cx.entry()])).await?;
    cx.backend().restore(table.cluster(), &saved).await?;
    is_reported(&cx, &table, &token, &silo, TableErrorKind::TableRolledBack).await?;
    // A client that knows nothing newer than the backup goes on.
    same(
        "the restored table",
        &at_save,
        &read(&cx.another(&table).await?).await?,
    )?;
    commit(&table, &cx.insert(&at_save.0.token, [cx.entry()])).await?;
    Ok(())
}

async fn a_table_rolled_back_and_forward_is_reported(cx: Cx) -> Verdict {
    let (table, mut tokens, silo) = begin(&cx).await?;
    let saved = cx.backend().save(table.cluster()).await?;
    for _ in 0..2 {
        let token = commit(&table, &cx.insert(&tokens[tokens.len() - 1], [cx.entry()])).await?;
        tokens.push(token);
    }
    let mut stale = Stale::pairs(&cx, &table, VERSIONS).await?.into_iter();
    cx.backend().restore(table.cluster(), &saved).await?;
    let fresh = cx.another(&table).await?;
    let mut token = read(&fresh).await?.0.token;
    // Commits again on another path: at the same version, past it, and up to the last version whose
    // commit is remembered.
    for _ in 0..15 {
        let mut reader = table.clone();
        if let Some(pair) = stale.next() {
            pair.cannot_commit(&cx, &tokens[tokens.len() - 1]).await?;
            reader = pair.reader;
        }
        for known in tokens[4..].iter().rev() {
            is_reported(&cx, &reader, known, &silo, TableErrorKind::TableRolledBack).await?;
        }
        token = commit(&fresh, &cx.insert(&token, [cx.entry()])).await?;
    }
    Ok(())
}

async fn a_table_rolled_back_far_is_detected_by_its_rows(cx: Cx) -> Verdict {
    let (table, _, _) = begin(&cx).await?;
    let saved = cx.backend().save(table.cluster()).await?;
    commit(
        &table,
        &cx.insert(&read(&table).await?.0.token, [cx.entry()]),
    )
    .await?;
    let known = read(&table).await?.0;
    cx.backend().restore(table.cluster(), &saved).await?;
    let fresh = cx.another(&table).await?;
    let mut token = read(&fresh).await?.0.token;
    for _ in 0..20 {
        token = commit(&fresh, &cx.insert(&token, [cx.entry()])).await?;
    }
    let now = read(&fresh).await?.0;
    let said = check_snapshot(&known, &now);
    must!(
        said == Err(Discontinuity::RolledBack),
        "version {} passes for a successor of version {}: {said:?}",
        now.version(),
        known.version()
    );
    Ok(())
}
