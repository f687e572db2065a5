//! The long runs: random operations against a model, concurrent histories, and a client that is
//! killed while it commits.

use std::process::Stdio;
use std::time::Duration;

use membership_core::{ReadRequest, Snapshot};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::case::{Case, Cx, Table, Verdict, case, commit, must, read};
use crate::history::{self, Checked, Failing, Plan};
use crate::{Capability, Stop};

pub(super) const CASES: &[Case] = &[
    case!(random_operations_agree_with_the_model: T1 T2 T3 T5 T6 T7 T8 T16),
    case!(a_concurrent_history_is_explained: T1 T2 T3 T4 T5 T6 T7 T8),
    case!(killed_servers_lose_nothing: T1 T2 T3 T4 T5 T6 T13),
    case!(frozen_leaders_lose_nothing: T1 T2 T3 T4 T5 T6 T13 T16),
    case!(a_killed_client_leaves_a_whole_table: T2 T14),
];

async fn random_operations_agree_with_the_model(cx: Cx) -> Verdict {
    crate::model::run(cx).await
}

async fn a_concurrent_history_is_explained(cx: Cx) -> Verdict {
    explained(&cx, 0, Failing::Kill).await
}

/// No acknowledged commit is lost, none is invented, and none is applied twice.
async fn killed_servers_lose_nothing(cx: Cx) -> Verdict {
    cx.needs(Capability::Restart)?;
    let kills = cx.effort().server_kills;
    explained(&cx, kills, Failing::Kill).await
}

/// The same where the leader is frozen until another one leads, and thawed. If a failover may lose
/// acknowledged commits, each client that knows of a lost one is told, and no other.
async fn frozen_leaders_lose_nothing(cx: Cx) -> Verdict {
    cx.needs(Capability::Depose)?;
    let freezes = cx.effort().freezes;
    let table = cx.table().await?;
    if cx.must_keep_commits(&*table) {
        return explained(&cx, freezes, Failing::Freeze).await;
    }
    let told = history::losses(&cx, &table, cx.effort().clients.max(2), freezes).await?;
    cx.measured(told);
    Ok(())
}

async fn explained(cx: &Cx, kills: usize, how: Failing) -> Verdict {
    let effort = cx.effort();
    let plan = Plan {
        clients: effort.clients.max(2),
        commits: effort.commits,
        lost: 5,
        kills,
        how,
    };
    let (history, outages) = history::run(cx, &plan).await?;
    let checked = history::explained(&history)?;

    must!(
        checked.commits >= plan.commits as u64,
        "the history has only {} commits",
        checked.commits
    );
    must!(
        effort.commits < 500 || (checked.conflicts > 0 && checked.open > 0),
        "the history is too small for a check: {checked:?}"
    );
    must!(
        outages.kills == kills,
        "the history ended after {} of {kills} failures of the server",
        outages.kills
    );
    let Checked {
        commits,
        reads,
        conflicts,
        open,
        ambiguous,
    } = checked;
    let summary = format!(
        "{commits} commits, {reads} reads, {conflicts} conflicts, {open} of unknown outcome, {ambiguous} versions of unknown commits"
    );
    cx.measured(if kills == 0 {
        summary
    } else {
        format!("{outages}; {summary}")
    });
    Ok(())
}

const ROWS: usize = 8;

async fn a_killed_client_leaves_a_whole_table(cx: Cx) -> Verdict {
    let cluster = cx.cluster()?;
    let command = cx.backend().child(&cluster)?;
    let table = cx.client(&cluster).await?;
    table.initialize(&cx.initialize_request()).await?;
    let rows = ROWS.min(table.limits().rows_per_commit / 2).max(1);
    let entries: Vec<_> = (0..rows)
        .map(|_| {
            let mut e = cx.entry();
            e.info.role = "mark 1".to_owned();
            e
        })
        .collect();
    commit(&table, &cx.insert(&read(&table).await?.0.token, entries)).await?;
    let mut random = cx.random(200);
    let mut command = Command::from(command);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    for kill in 0..cx.effort().kills {
        let committed = kill_at_random(&cx, &mut command, &mut random)
            .await
            .map_err(|stop| match stop {
                Stop::Failed(why) => Stop::Failed(format!("kill {kill}: {why}")),
                other => other,
            })?;
        let (now, _) = read_after_kill(&cx, &table).await?;
        must!(
            now.version() >= committed,
            "kill {kill}: version {committed} was committed, and the table is at {}",
            now.version()
        );
        whole(&now, rows).map_err(|why| Stop::failed(format!("kill {kill}: {why}")))?;
        let done = kill + 1;
        if done % 100 == 0 {
            cx.progress(format!(
                "killed client {done} of {}: the table is whole at version {}",
                cx.effort().kills,
                now.version()
            ));
        }
    }
    Ok(())
}

/// Starts a child, lets it commit a few times, and kills it at a random moment. Returns the last
/// version that it reported as committed.
async fn kill_at_random(
    cx: &Cx,
    command: &mut Command,
    random: &mut crate::case::Random,
) -> Result<u64, Stop> {
    let mut child = command.spawn()?;
    let Some(out) = child.stdout.take() else {
        return Err(Stop::failed("the child has no standard output"));
    };
    let mut lines = BufReader::new(out).lines();
    let mut committed = 0;
    let version_in = |line: &str| {
        line.strip_prefix(crate::child::MARK)?
            .strip_prefix("committed ")?
            .parse::<u64>()
            .ok()
    };
    for _ in 0..=random.below(4) {
        let line = async {
            while let Some(line) = lines.next_line().await? {
                if let Some(version) = version_in(&line) {
                    return Ok(version);
                }
                if let Some(why) = line.strip_prefix(crate::child::MARK) {
                    return Err(Stop::failed(format!("the child: {why}")));
                }
            }
            Err(Stop::failed("the child ended by itself without output"))
        };
        committed = cx.in_time("a child's commit", line).await??;
    }
    tokio::time::sleep(Duration::from_micros(random.next() % 3_000)).await;
    child.kill().await?;
    while let Some(line) = lines.next_line().await? {
        committed = version_in(&line).unwrap_or(committed).max(committed);
    }
    Ok(committed)
}

/// Reads after a kill. The dead client may have left a lock, which the store needs a moment to
/// release.
async fn read_after_kill(
    cx: &Cx,
    table: &Table,
) -> Result<(Snapshot, membership_core::Heartbeats), Stop> {
    let patient = async {
        loop {
            match table.read(&ReadRequest::all()).await {
                Err(e) if e.next_step() == membership_core::NextStep::Retry => {
                    tokio::time::sleep(Duration::from_millis(5)).await
                }
                _ => return read(table).await,
            }
        }
    };
    cx.in_time("a read after the kill", patient).await?
}

/// Checks that every row carries the mark of the newest version, and that no row is missing.
fn whole(now: &Snapshot, rows: usize) -> Result<(), String> {
    let mark = format!("mark {}", now.version());
    let marked = now
        .rows
        .entries()
        .filter(|e| e.info.role == mark && e.written_at == now.version())
        .count();
    let counted = now.version_row.row_count;
    if marked == rows && now.rows.len() == rows && counted == rows as u64 {
        return Ok(());
    }
    Err(format!(
        "version {}: {marked} of {} rows carry its mark, {counted} are counted, {rows} were expected",
        now.version(),
        now.rows.len()
    ))
}
