//! What must not be seen. T15.

use membership_core::{CommitId, HeartbeatWrite, ReadRequest, TableError, TableId, VersionToken};

use crate::case::{Case, Cx, Verdict, case, must, read};

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
    must!(secret.len() >= 8, "the planted secret is too short to be searched for");
    let (table, absent) = (cx.table().await?, cx.client(&cx.cluster()?).await?);
    let mut said = vec![format!("{table:?} {table:#?} {absent:?}"), format!("{:?}", read(&table).await?)];
    let mut clients = vec![table, absent];
    match cx.backend().refused_client(&cx.cluster()?).await {
        None => {}
        Some(Ok(client)) => {
            said.push(format!("{client:?}"));
            clients.push(client);
        }
        Some(Err(error)) => said.push(everything_said(&error)),
    }
    let nowhere = VersionToken::new(TableId::new(1), 5, CommitId::new(1), &[]);
    for client in clients {
        let silo = cx.entry().address;
        let heartbeat = membership_core::Heartbeat { counter: 1, at: Default::default() };
        let errors = [
            client.read(&ReadRequest { known: Some(nowhere.clone()), ..ReadRequest::all() }).await.err(),
            client.read(&ReadRequest::all()).await.err(),
            client.read_row(&silo, Some(&nowhere)).await.err(),
            client.commit(&cx.insert(&nowhere, [cx.entry()])).await.err(),
            client.commit(&cx.insert(&nowhere, [])).await.err(),
            client.update_i_am_alive(&HeartbeatWrite::Silo { silo, heartbeat }).await.err(),
        ];
        said.extend(errors.iter().flatten().map(everything_said));
    }
    for text in said {
        must!(!text.contains(&secret), "the secret shows in: {}", text.replace(&secret, "<the secret>"));
    }
    Ok(())
}
