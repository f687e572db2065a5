//! Secrets must not show. T15.

use membership_core::{
    ClusterKey, ClusterKeys, ClusterName, CommitId, HeartbeatWrite, InitializeRequest, ReadRequest,
    SharedSettings, TableError, TableId, VersionToken,
};

use crate::Stop;
use crate::case::{Case, Cx, Table, Verdict, case, commit, must, read};
use crate::log_capture::never_logs;

pub(super) const CASES: &[Case] = &[
    case!(secrets_do_not_show: T15),
    case!(the_cluster_key_is_kept_and_does_not_show: T15),
];

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

/// The first writer's key stays, through initializing again and commits; it appears in nothing but
/// the stored version row.
async fn the_cluster_key_is_kept_and_does_not_show(cx: Cx) -> Verdict {
    let mut key = [0; 32];
    for half in key.chunks_mut(16) {
        half.copy_from_slice(&cx.unique().to_be_bytes());
    }
    let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let cluster = cx.cluster()?;
    drop(cx.client(&cluster).await?);
    let work = life_with_a_key(cx.clone(), cluster, ClusterKey::new(key));
    let (said, captured) = never_logs(&digits, work).await?;
    for text in said {
        must!(
            !text.contains(&digits),
            "the cluster key shows in: {}",
            text.replace(&digits, "<the key>")
        );
    }
    cx.measured(format!("{} lines of logs", captured.lines));
    Ok(())
}

async fn life_with_a_key(
    cx: Cx,
    cluster: ClusterName,
    key: ClusterKey,
) -> Result<Vec<String>, Stop> {
    let table = cx.client(&cluster).await?;
    let id = TableId::new(cx.unique());
    let request = InitializeRequest::new(id, SharedSettings::default(), key);
    table.initialize(&request).await?;
    let again = cx.initialize_request();
    table.initialize(&again).await?;
    let kept = ClusterKeys::from(key);
    let mut said = vec![format!("{request:?} {table:?} {table:#?}")];
    for client in [table.clone(), cx.another(&table).await?] {
        for _ in 0..2 {
            let (snapshot, _) = read(&client).await?;
            let core = &snapshot.version_row.core;
            must!(
                core.cluster_keys() == kept,
                "the table has {} keys, and not only the one that it was made with",
                core.cluster_keys().len()
            );
            let row = &*snapshot.version_row;
            said.push(format!("{snapshot:?} {row:#?}"));
            said.push(serde_json::to_string(row).unwrap_or_else(|e| e.to_string()));
            commit(&client, &cx.insert(&snapshot.token, [cx.entry()])).await?;
        }
        said.extend(errors(&cx, &client).await.iter().map(everything_said));
    }
    Ok(said)
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
