//! Large tables, and the limits. T11.

use membership_core::{
    CauseOfDeath, CleanupPolicy, Death, SiloStatus, TableErrorKind, TableExt, WallTime,
};

use crate::case::{Case, Cx, Verdict, case, commit, must, read, refused, same};

pub(super) const CASES: &[Case] = &[
    case!(a_large_table_works: T11),
    case!(more_than_the_limits_is_refused: T11),
    case!(defunct_rows_are_cleaned_up_within_the_limits: T11 T2),
];

async fn a_large_table_works(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let limits = table.limits();
    let rows = cx.effort().rows.min(limits.rows);
    let entries: Vec<_> = (0..rows).map(|_| cx.entry()).collect();
    let widest = entries
        .last()
        .map_or(1, |e| membership_core::Row::encode(e.clone()).size() + 16);
    let chunk = limits
        .rows_per_commit
        .min(limits.bytes_per_commit / widest)
        .max(1);
    let mut token = read(&table).await?.0.token;
    for part in entries.chunks(chunk) {
        token = commit(&table, &cx.insert(&token, part.iter().cloned())).await?;
    }
    let reader = cx.another(&table).await?;
    let (now, _) = read(&reader).await?;
    must!(
        now.rows.len() == rows && now.version_row.row_count == rows as u64,
        "of {rows} rows {} are read",
        now.rows.len()
    );
    for e in &entries {
        must!(
            now.rows
                .get(&e.address)
                .is_some_and(|got| got.info.silo_name == e.info.silo_name),
            "{} is missing or wrong",
            e.address
        );
    }
    if rows == limits.rows {
        refused(
            "one row more",
            table.commit(&cx.insert(&token, [cx.entry()])).await,
            &[TableErrorKind::LimitExceeded],
        )?;
    }
    // A small change of a large table, and its deletion.
    let changed = entries.first().cloned().map(|mut e| {
        e.info.silo_name = "changed".to_owned();
        e
    });
    commit(&table, &cx.update(&token, changed.clone())).await?;
    let (then, _) = read(&reader).await?;
    let differ = then
        .rows
        .iter()
        .filter(|r| now.rows.by_key(r.key()) != Some(*r))
        .count();
    must!(
        differ == changed.iter().count(),
        "a change of one row changed {differ}"
    );
    table.delete().await?;
    refused(
        "read after delete",
        cx.another(&table).await?.read_all().await,
        &[TableErrorKind::NotInitialized],
    )?;
    Ok(())
}

async fn more_than_the_limits_is_refused(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let limits = table.limits();
    must!(
        limits.rows_per_commit >= 2,
        "a commit must take at least two rows, this table says {}",
        limits.rows_per_commit
    );
    let entry = cx.entry();
    let token = commit(
        &table,
        &cx.insert(&read(&table).await?.0.token, [entry.clone()]),
    )
    .await?;
    let before = read(&table).await?;
    let too_much = &[TableErrorKind::LimitExceeded];

    let mut wide = cx.entry();
    wide.info.silo_name = "x".repeat(limits.bytes_per_row);
    refused(
        "a row too large",
        table.commit(&cx.insert(&token, [wide])).await,
        too_much,
    )?;
    let mut grown = entry.clone();
    grown
        .info
        .metadata
        .insert("k".to_owned(), "x".repeat(limits.bytes_per_row));
    refused(
        "an update too large",
        table.commit(&cx.update(&token, [grown])).await,
        too_much,
    )?;

    if limits.rows_per_commit <= 20_000 {
        let many = (0..=limits.rows_per_commit).map(|_| cx.entry());
        refused(
            "too many rows at once",
            table.commit(&cx.insert(&token, many)).await,
            too_much,
        )?;
        let many = (0..=limits.rows_per_commit).map(|_| cx.entry().address.row_key());
        refused(
            "too many removals at once",
            table.commit(&cx.remove(&token, many)).await,
            too_much,
        )?;
    }
    let each = (limits.bytes_per_row / 2).max(1);
    let needed = limits.bytes_per_commit / each + 1;
    if needed <= limits.rows_per_commit && limits.bytes_per_commit <= 64 << 20 {
        let heavy = (0..needed).map(|_| {
            let mut e = cx.entry();
            e.info.silo_name = "x".repeat(each);
            e
        });
        refused(
            "too many bytes at once",
            table.commit(&cx.insert(&token, heavy)).await,
            too_much,
        )?;
    }
    let mut core = cx.insert(&token, [cx.entry()]);
    core.core = Some("x".repeat(1025).into());
    refused("a core cell too large", table.commit(&core).await, too_much)?;
    same(
        "commits beyond the limits",
        &before,
        &read(&cx.another(&table).await?).await?,
    )?;

    // A row at the limit works.
    let mut exact = cx.entry();
    let mut empty = exact.clone();
    empty.written_at = 2;
    let empty = membership_core::Row::encode(empty).size();
    let room = limits.bytes_per_row.min(limits.bytes_per_commit) - empty.min(limits.bytes_per_row);
    exact.info.silo_name.push_str(&"x".repeat(room));
    commit(&table, &cx.insert(&token, [exact.clone()])).await?;
    let got = read(&table)
        .await?
        .0
        .rows
        .get(&exact.address)
        .map(|e| e.info.silo_name.len());
    must!(
        got == Some(exact.info.silo_name.len()),
        "the largest row reads as {got:?} characters"
    );
    Ok(())
}

async fn defunct_rows_are_cleaned_up_within_the_limits(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let at = |ms: u64| WallTime::from_millis(1_000_000 + ms);
    let mut token = read(&table).await?.0.token;
    let mut oldest = Vec::new();
    for n in 0..10 {
        let mut e = cx.entry();
        if n < 6 {
            e.status = SiloStatus::Dead;
            e.death = Some(Death::new(CauseOfDeath::Left, at(n), None, 0));
            oldest.push(e.address.row_key());
        }
        let stopping = [
            SiloStatus::Active,
            SiloStatus::ShuttingDown,
            SiloStatus::Stopping,
            SiloStatus::Joining,
        ];
        if let Some(status) = usize::try_from(n)
            .ok()
            .and_then(|n| stopping.get(n.checked_sub(6)?))
        {
            e.status = *status;
            e.info.gateway_port = 30_000;
        }
        token = commit(&table, &cx.insert(&token, [e])).await?;
    }
    let gateways = table.gateways().await?;
    must!(
        gateways.len() == 1 && gateways.iter().all(|g| g.endpoint.port() == 30_000),
        "the gateways are {gateways:?}"
    );
    let mut ids = || cx.commit_id();
    let policy = CleanupPolicy::new(at(100), std::time::Duration::from_millis(95), 2);
    let removed = table
        .cleanup_defunct_silo_entries(&policy, &mut ids)
        .await?;
    must!(
        removed == oldest[..4],
        "cleanup of rows older than 95 ms that keeps 2: removed {removed:?} of {oldest:?}"
    );
    must!(
        table
            .cleanup_defunct_silo_entries(&policy, &mut ids)
            .await?
            .is_empty(),
        "the second cleanup found something"
    );
    let left = read(&table).await?.0;
    must!(
        left.rows.len() == 6
            && left
                .rows
                .entries()
                .filter(|e| e.status == SiloStatus::Dead)
                .count()
                == 2,
        "the remaining rows are {:?}",
        left.rows
    );
    Ok(())
}
