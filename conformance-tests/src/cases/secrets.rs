//! Secrets must not show. T15.

use membership_core::{CommitId, HeartbeatWrite, ReadRequest, TableError, TableId, VersionToken};

use crate::Stop;
use crate::case::{Case, Cx, Table, Verdict, case, must, read};
use crate::log_capture::never_logs;

pub(super) const CASES: &[Case] = &[case!(secrets_do_not_show: T15)];

fn everything_said(error: &TableError) -> String {
    let mut text = format!("{error} {error:?} {error:#?}");
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(&format!(" {cause} {cause:?}"));
        source = cause.source();
    }
    text
}

async fn secrets_do_not_show(cx: Cx) -> Verdict {
    let secret = cx.backend().secret()?;
    must!(
        secret.len() >= 8,
        "the planted secret is too short to be searched for"
    );
    // State that clients share is created here, and outlives the captured thread.
    let cluster = cx.cluster()?;
    drop(cx.client(&cluster).await?);
    let (said, captured) = never_logs(&secret, everything(cx.clone())).await?;
    for text in said {
        must!(
            !text.contains(&secret),
            "the secret shows in: {}",
            text.replace(&secret, "<the secret>")
        );
    }
    cx.measured(format!("{} lines of logs", captured.lines));
    Ok(())
}

/// The debug output of clients, and their errors: clients of a table, clients of none, and clients
/// that are refused.
async fn everything(cx: Cx) -> Result<Vec<String>, Stop> {
    let (table, absent) = (cx.table().await?, cx.client(&cx.cluster()?).await?);
    let mut said = vec![
        format!("{table:?} {table:#?} {absent:?}"),
        format!("{:?}", read(&table).await?),
    ];
    drop(table.hints());
    let mut clients = vec![table, absent];
    match cx.backend().refused_client(&cx.cluster()?).await {
        None => {}
        Some(Ok(client)) => {
            said.push(format!("{client:?}"));
            clients.push(client);
        }
        Some(Err(error)) => said.push(everything_said(&error)),
    }
    for client in clients {
        said.extend(errors(&cx, &client).await.iter().map(everything_said));
    }
    Ok(said)
}

/// The errors of every operation, also with an unknown token.
async fn errors(cx: &Cx, client: &Table) -> Vec<TableError> {
    let nowhere = VersionToken::new(TableId::new(1), 5, CommitId::new(1), &[]);
    let silo = cx.entry().address;
    let heartbeat = membership_core::Heartbeat {
        counter: 1,
        at: Default::default(),
    };
    let errors = [
        client
            .read(&ReadRequest::all().with_known(nowhere.clone()))
            .await
            .err(),
        client.read(&ReadRequest::all()).await.err(),
        client.read_row(&silo, Some(&nowhere)).await.err(),
        client
            .commit(&cx.insert(&nowhere, [cx.entry()]))
            .await
            .err(),
        client.commit(&cx.insert(&nowhere, [])).await.err(),
        client
            .update_i_am_alive(&HeartbeatWrite::Silo { silo, heartbeat })
            .await
            .err(),
    ];
    errors.into_iter().flatten().collect()
}
