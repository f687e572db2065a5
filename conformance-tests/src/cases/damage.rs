//! Tables that something other than a provider has changed. T12.

use membership_core::encoding::encode_version_row;
use membership_core::{
    CommitOutcome, ReadAnswer, ReadRequest, TableErrorKind, TableExt, VersionRow,
};

use crate::case::{Case, Cx, Verdict, case, commit, conflict, must, read, refused, unknown_answer};

pub(super) const CASES: &[Case] = &[
    case!(an_undecodable_row_is_returned_and_can_be_removed: T12),
    case!(a_row_under_another_spelling_of_a_key_hides_nothing: T12),
    case!(rows_without_a_version_row_are_damaged: T12),
    case!(a_foreign_table_is_refused: T12),
    case!(a_newer_table_is_refused: T12),
    case!(a_damaged_version_row_is_reported: T12),
];

async fn an_undecodable_row_is_returned_and_can_be_removed(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let (good, bad) = (cx.entry(), cx.entry());
    let token = commit(
        &table,
        &cx.insert(&read(&table).await?.0.token, [good.clone(), bad.clone()]),
    )
    .await?;
    let (key, junk) = (
        bad.address.row_key(),
        "{\"layout\":1,\"min_layout\":1,\"surprise\":\"☃\"}",
    );
    cx.backend().put_row(table.cluster(), &key, junk).await?;
    cx.backend()
        .put_row(table.cluster(), "no silo's key", "no JSON either")
        .await?;
    let reader = cx.another(&table).await?;
    let (now, _) = read(&reader).await?;
    must!(
        now.rows.len() == 3,
        "three rows are stored, two of them undecodable; {} are read",
        now.rows.len()
    );
    must!(
        now.rows
            .by_key(&key)
            .is_some_and(|r| r.entry().is_none() && r.body() == junk),
        "{key} reads as {:?}",
        now.rows.by_key(&key)
    );
    must!(
        now.rows
            .by_key("no silo's key")
            .is_some_and(|r| r.body() == "no JSON either"),
        "a row under a nonsense key is skipped"
    );
    must!(
        now.rows.get(&good.address).is_some(),
        "an undecodable row hides a good one"
    );
    let one = reader.read_row(&bad.address, None).await?.row;
    must!(
        one.is_some_and(|r| r.entry().is_none() && r.key() == key),
        "read_row skips the undecodable row"
    );
    // It blocks only the operations that need the row.
    let token = commit(&table, &cx.update(&token, [good.clone()])).await?;
    conflict(
        &table,
        &cx.insert(&token, [bad.clone()]),
        "an insert where an undecodable row stands",
    )
    .await?;
    let mut ids = || cx.commit_id();
    for key in [key.as_str(), "no silo's key"] {
        must!(
            table.remove_undecodable(key, &mut ids).await?,
            "{key} could not be removed"
        );
    }
    must!(
        !table.remove_undecodable("no silo's key", &mut ids).await?,
        "a row that is not there was removed"
    );
    refused(
        "removing a good row as undecodable",
        table
            .remove_undecodable(&good.address.row_key(), &mut ids)
            .await,
        &[TableErrorKind::InvalidRequest],
    )?;
    let (now, _) = read(&reader).await?;
    must!(
        now.rows.len() == 1 && now.rows.get(&good.address).is_some(),
        "after the repair the rows are {:?}",
        now.rows
    );
    Ok(())
}

async fn a_row_under_another_spelling_of_a_key_hides_nothing(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let entry = cx.entry();
    let token = commit(
        &table,
        &cx.insert(&read(&table).await?.0.token, [entry.clone()]),
    )
    .await?;
    let key = entry.address.row_key();
    let good = read(&table).await?.0;
    let body = good
        .rows
        .by_key(&key)
        .map(|r| r.body().to_owned())
        .unwrap_or_default();
    let spelled = key.replacen('@', "@0", 1);
    cx.backend()
        .put_row(table.cluster(), &spelled, &body)
        .await?;
    let (now, _) = read(&cx.another(&table).await?).await?;
    must!(
        now.rows.len() == 2 && now.rows.get(&entry.address).is_some(),
        "beside {key}, {spelled} reads as {:?}",
        now.rows
    );
    must!(
        now.rows
            .by_key(&spelled)
            .is_some_and(|r| r.entry().is_none()),
        "{spelled} was taken for {key}"
    );
    commit(&table, &cx.remove(&token, [key.clone()])).await?;
    let (now, _) = read(&cx.another(&table).await?).await?;
    must!(
        now.rows.len() == 1 && now.rows.by_key(&spelled).is_some(),
        "with {key} removed the rows are {:?}",
        now.rows
    );
    must!(
        table
            .remove_undecodable(&spelled, &mut || cx.commit_id())
            .await?,
        "{spelled} could not be removed"
    );
    Ok(())
}

async fn rows_without_a_version_row_are_damaged(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let entry = cx.entry();
    let token = commit(
        &table,
        &cx.insert(&read(&table).await?.0.token, [entry.clone()]),
    )
    .await?;
    cx.backend().drop_version_row(table.cluster()).await?;
    let fresh = cx.another(&table).await?;
    let damaged = &[TableErrorKind::Damaged];
    refused("read", fresh.read(&ReadRequest::all()).await, damaged)?;
    let named = refused(
        "initialize",
        fresh.initialize(&cx.initialize_request()).await,
        damaged,
    )?;
    must!(
        named.to_string().contains(&entry.address.row_key()),
        "initialize does not name an existing row: {named}"
    );
    refused(
        "a second initialize",
        fresh.initialize(&cx.initialize_request()).await,
        damaged,
    )?;
    let answer = table.commit(&cx.update(&token, [entry])).await;
    must!(
        !matches!(answer, Ok(CommitOutcome::Committed(_))),
        "a commit landed: {answer:?}"
    );
    // Deleting the cluster repairs it.
    fresh.delete().await?;
    fresh.initialize(&cx.initialize_request()).await?;
    must!(
        read(&fresh).await?.0.rows.is_empty(),
        "rows survived the delete"
    );
    Ok(())
}

/// No operation works on the table, and nothing in it changes, for any client.
async fn everything_is_refused(cx: &Cx, text: &str, kind: TableErrorKind) -> Verdict {
    let table = cx.table().await?;
    let entry = cx.entry();
    let token = commit(
        &table,
        &cx.insert(&read(&table).await?.0.token, [entry.clone()]),
    )
    .await?;
    let good = encode_version_row(&read(&table).await?.0.version_row);
    cx.backend().put_version_row(table.cluster(), text).await?;
    for (who, client) in [
        ("a new client", cx.another(&table).await?),
        ("a client that knew it", table.clone()),
    ] {
        refused(
            &format!("initialize by {who}"),
            client.initialize(&cx.initialize_request()).await,
            &[kind],
        )?;
        refused(
            &format!("read by {who}"),
            client.read(&ReadRequest::all()).await,
            &[kind],
        )?;
        refused(
            &format!("read_row by {who}"),
            client.read_row(&entry.address, None).await,
            &[kind],
        )?;
        refused(
            &format!("commit by {who}"),
            client.commit(&cx.update(&token, [entry.clone()])).await,
            &[kind],
        )?;
    }
    if kind != TableErrorKind::Damaged {
        refused("delete", table.delete().await, &[kind])?;
    }
    cx.backend().put_version_row(table.cluster(), &good).await?;
    match table
        .read(&ReadRequest::all().with_known(token.clone()))
        .await?
    {
        ReadAnswer::Unchanged { .. } => {}
        ReadAnswer::Snapshot { snapshot, .. } => must!(
            snapshot.token.same_commit(&token),
            "something was written: {snapshot:?}"
        ),
        other => return Err(unknown_answer(&other)),
    }
    must!(read(&table).await?.0.rows.len() == 1, "a row was lost");
    Ok(())
}

async fn a_foreign_table_is_refused(cx: Cx) -> Verdict {
    everything_is_refused(
        &cx,
        "{\"Version\":7,\"ETag\":\"x\"}",
        TableErrorKind::ForeignTable,
    )
    .await
}

async fn a_newer_table_is_refused(cx: Cx) -> Verdict {
    let mut row = VersionRow::initial(cx.initialize_request().table_id, Default::default());
    (row.layout, row.min_layout) = (900, 900);
    everything_is_refused(&cx, &encode_version_row(&row), TableErrorKind::NewerLayout).await
}

async fn a_damaged_version_row_is_reported(cx: Cx) -> Verdict {
    let row = VersionRow::initial(cx.initialize_request().table_id, Default::default());
    let text = encode_version_row(&row).replacen("\"version\":0", "\"version\":-1", 1);
    everything_is_refused(&cx, &text, TableErrorKind::Damaged).await?;
    // Deleting the cluster repairs it if the row cannot be restored.
    let table = cx.table().await?;
    commit(
        &table,
        &cx.insert(&read(&table).await?.0.token, [cx.entry()]),
    )
    .await?;
    cx.backend().put_version_row(table.cluster(), &text).await?;
    let fresh = cx.another(&table).await?;
    cx.in_time("delete", fresh.delete()).await??;
    refused(
        "read after the delete",
        cx.another(&table).await?.read(&ReadRequest::all()).await,
        &[TableErrorKind::NotInitialized],
    )?;
    fresh.initialize(&cx.initialize_request()).await?;
    let (now, _) = read(&fresh).await?;
    must!(
        now.version() == 0 && now.rows.is_empty(),
        "something survived the delete: {now:?}"
    );
    commit(&fresh, &cx.insert(&now.token, [cx.entry()])).await?;
    Ok(())
}
