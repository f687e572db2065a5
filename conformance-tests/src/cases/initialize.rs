//! How a table is created and deleted. T1, T12.

use membership_core::{
    CommitId, HeartbeatWrite, Heartbeats, ReadAnswer, ReadRequest, SharedSettings, TableError,
    TableErrorKind, VersionRow, VersionToken,
};

use crate::Stop;
use crate::case::{Case, Cx, Verdict, case, commit, must, read, refused, same};

pub(super) const CASES: &[Case] = &[
    case!(fifty_silos_initialize_at_once: T1),
    case!(initialize_never_resets: T1),
    case!(an_absent_table_is_not_initialized: T12),
    case!(a_deleted_table_is_gone_and_can_be_made_again: T12 T16),
    case!(an_interrupted_delete_is_finished_by_delete: T12),
];

async fn fifty_silos_initialize_at_once(cx: Cx) -> Verdict {
    let cluster = cx.cluster()?;
    let (mut tasks, mut offered) = (Vec::new(), Vec::new());
    for _ in 0..50 {
        let (table, request) = (cx.client(&cluster).await?, cx.initialize_request());
        offered.push(request.table_id);
        tasks.push(tokio::spawn(async move {
            // Each reads at once what it has found made: later reads show the last table only.
            patiently(|| table.initialize(&request)).await?;
            let request = ReadRequest::all().with_barrier(true);
            let found = patiently(|| table.read(&request)).await?;
            Ok::<_, TableError>((table, found))
        }));
    }
    let (mut tables, mut found) = (Vec::new(), Vec::new());
    for task in tasks {
        let (table, answer) = task.await??;
        tables.push(table);
        let ReadAnswer::Snapshot { snapshot, .. } = answer else {
            return Err(Stop::failed("a read of everything has no snapshot"));
        };
        found.push(snapshot);
    }
    for table in &tables {
        found.push(read(table).await?.0);
    }
    let mut made = None;
    for now in found {
        must!(
            now.version() == 0 && now.rows.is_empty(),
            "a new table is at version {} with {} rows",
            now.version(),
            now.rows.len()
        );
        must!(
            offered.contains(&now.table_id()),
            "no client offered the table id {}",
            now.table_id()
        );
        let first = *made.get_or_insert(now.table_id());
        must!(
            first == now.table_id(),
            "the table was made twice: {first} and {}",
            now.table_id()
        );
    }
    Ok(())
}

/// Tries again while a store is too busy for fifty clients at the same time, and reports that.
async fn patiently<T, F: Future<Output = Result<T, TableError>>>(
    attempt: impl Fn() -> F,
) -> Result<T, TableError> {
    for _ in 0..50 {
        match attempt().await {
            Err(e) if e.kind() == TableErrorKind::Busy => tokio::task::yield_now().await,
            other => return other,
        }
    }
    attempt().await
}

async fn initialize_never_resets(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let start = read(&table).await?.0;
    must!(
        start.version() == 0,
        "a new table is at version {}",
        start.version()
    );
    must!(
        start.version_row.settings == SharedSettings::default(),
        "the settings of the first initialize did not stay"
    );
    commit(&table, &cx.insert(&start.token, [cx.entry()])).await?;
    let before = read(&table).await?;
    let mut request = cx.initialize_request();
    request.settings.num_votes_for_death_declaration = 7;
    let other = cx.another(&table).await?;
    other.initialize(&request).await?;
    table.initialize(&request).await?;
    same(
        "initialize of a table that exists",
        &before,
        &read(&other).await?,
    )
}

async fn an_absent_table_is_not_initialized(cx: Cx) -> Verdict {
    let (table, there) = (cx.client(&cx.cluster()?).await?, cx.table().await?);
    // Another cluster of the same store shows that the store itself is there.
    read(&there).await?;
    let entry = cx.entry();
    let absent = &[TableErrorKind::NotInitialized];
    refused("read", table.read(&ReadRequest::all()).await, absent)?;
    refused(
        "read_row",
        table.read_row(&entry.address, None).await,
        absent,
    )?;
    let token = VersionToken::new(cx.initialize_request().table_id, 0, CommitId::new(0), &[]);
    let lands = table.commit(&cx.insert(&token, [entry.clone()])).await;
    refused(
        "commit",
        lands,
        &[
            TableErrorKind::NotInitialized,
            TableErrorKind::TableReplaced,
        ],
    )?;
    let beat = membership_core::Heartbeat {
        counter: 1,
        at: entry.start_time,
    };
    // The heartbeat may be refused or become an orphan. It must not become a row, or an obstacle.
    let _ = table
        .update_i_am_alive(&HeartbeatWrite::Silo {
            silo: entry.address,
            heartbeat: beat,
        })
        .await;
    refused(
        "read after a commit and a heartbeat",
        table.read(&ReadRequest::all()).await,
        absent,
    )?;
    table.initialize(&cx.initialize_request()).await?;
    let (now, heartbeats) = read(&table).await?;
    must!(
        now.rows.is_empty() && heartbeats.silos.is_empty(),
        "a new table has {} rows, {heartbeats:?}",
        now.rows.len()
    );
    Ok(())
}

async fn a_deleted_table_is_gone_and_can_be_made_again(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let start = read(&table).await?.0;
    let token = commit(&table, &cx.insert(&start.token, [cx.entry(), cx.entry()])).await?;
    let text = "of the deleted table".to_owned();
    table
        .update_i_am_alive(&HeartbeatWrite::Cluster { text })
        .await?;
    let other = cx.another(&table).await?;
    other.delete().await?;
    other.delete().await?;
    let fresh = cx.another(&table).await?;
    refused(
        "read by a new client",
        fresh.read(&ReadRequest::all()).await,
        &[TableErrorKind::NotInitialized],
    )?;
    let known = ReadRequest::all().with_known(token.clone());
    refused(
        "read by a client that knew it",
        table.read(&known).await,
        &[TableErrorKind::TableReplaced],
    )?;
    fresh.initialize(&cx.initialize_request()).await?;
    let (now, heartbeats) = read(&table).await?;
    must!(
        now.version() == 0 && now.rows.is_empty() && heartbeats == Heartbeats::default(),
        "something of the deleted table is back: {now:?} {heartbeats:?}"
    );
    must!(
        now.table_id() != start.table_id(),
        "the new table has the old one's id"
    );
    Ok(())
}

async fn an_interrupted_delete_is_finished_by_delete(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let start = read(&table).await?.0;
    let entry = cx.entry();
    let token = commit(&table, &cx.insert(&start.token, [entry.clone()])).await?;
    let mut marked = VersionRow::clone(&read(&table).await?.0.version_row);
    marked.deleting = true;
    cx.backend()
        .put_version_row(
            table.cluster(),
            &membership_core::encoding::encode_version_row(&marked),
        )
        .await?;
    let deleting = &[TableErrorKind::BeingDeleted];
    refused(
        "initialize",
        table.initialize(&cx.initialize_request()).await,
        deleting,
    )?;
    refused("read", table.read(&ReadRequest::all()).await, deleting)?;
    refused(
        "read_row",
        table.read_row(&entry.address, None).await,
        deleting,
    )?;
    refused(
        "commit",
        table.commit(&cx.insert(&token, [cx.entry()])).await,
        deleting,
    )?;
    table.delete().await?;
    let fresh = cx.another(&table).await?;
    refused(
        "read after delete",
        fresh.read(&ReadRequest::all()).await,
        &[TableErrorKind::NotInitialized],
    )?;
    fresh.initialize(&cx.initialize_request()).await?;
    Ok(())
}
