//! What somebody with the store's own shell would do to a table over one document, staged through the provider's own [`DocumentStore`].

use membership_core::{DocumentStore, Heartbeats, Revision, Stored};

use crate::Stop;

/// A document and its heartbeats as they were.
pub(crate) struct Saved {
    text: Option<String>,
    heartbeats: Heartbeats,
}

async fn load(
    documents: &dyn DocumentStore,
) -> Result<(Option<(Revision, String)>, Heartbeats), Stop> {
    let read = documents.load(None, true, true).await?;
    let heartbeats = read.heartbeats.ok_or_else(|| {
        Stop::failed("the document was loaded without the heartbeats that were asked for")
    })?;
    match read.document {
        Stored::None => Ok((None, heartbeats)),
        Stored::Document { revision, text } => Ok((Some((revision, text)), heartbeats)),
        Stored::Unchanged => Err(Stop::failed(
            "the store says unchanged to somebody who knows no revision",
        )),
    }
}

/// Puts a text in the place of the document, or takes the document away. Heartbeats stay.
pub(crate) async fn replace(documents: &dyn DocumentStore, text: Option<&str>) -> Result<(), Stop> {
    let (now, _) = load(documents).await?;
    let revision = now.map(|(revision, _)| revision);
    let done = match (text, &revision) {
        (Some(text), revision) => documents
            .store_if_unchanged(revision.as_ref(), text)
            .await?
            .is_some(),
        (None, Some(revision)) => documents.remove_if_unchanged(revision).await?,
        (None, None) => true,
    };
    if done {
        Ok(())
    } else {
        Err(Stop::failed(
            "the document changed while the test staged something, and nobody else is there",
        ))
    }
}

/// Changes the document, which must be there, as JSON.
pub(crate) async fn edit(
    documents: &dyn DocumentStore,
    change: impl FnOnce(&mut serde_json::Value) + Send,
) -> Result<(), Stop> {
    let (_, text) = load(documents)
        .await?
        .0
        .ok_or_else(|| Stop::failed("there is no document to stage damage in"))?;
    let mut value: serde_json::Value = serde_json::from_str(&text)?;
    change(&mut value);
    replace(documents, Some(&value.to_string())).await
}

pub(crate) async fn save(documents: &dyn DocumentStore) -> Result<Saved, Stop> {
    let (now, heartbeats) = load(documents).await?;
    Ok(Saved {
        text: now.map(|(_, text)| text),
        heartbeats,
    })
}

pub(crate) async fn restore(documents: &dyn DocumentStore, saved: &Saved) -> Result<(), Stop> {
    replace(documents, saved.text.as_deref()).await?;
    documents.remove_heartbeats(None).await?;
    for (silo, heartbeat) in &saved.heartbeats.silos {
        documents.put_heartbeat(silo, heartbeat).await?;
    }
    match &saved.heartbeats.cluster {
        Some(text) => Ok(documents.put_cluster_cell(text).await?),
        None => Ok(()),
    }
}
