//! Stages damage to a table over one document, through the provider's own [`DocumentStore`].

use async_trait::async_trait;
use membership_core::{DocumentStore, Heartbeats, Revision, Stored};

use crate::raw::RawAccess;
use crate::stop::Stop;

/// The cluster of a table over one document, accessed past the table.
pub struct DocumentAccess(Box<dyn DocumentStore>);

/// A saved document and its heartbeats.
#[derive(Debug, Default)]
pub struct SavedDocument {
    text: Option<String>,
    heartbeats: Heartbeats,
}

impl DocumentAccess {
    /// Access to this document.
    pub fn new(document: impl DocumentStore) -> Self {
        Self(Box::new(document))
    }

    async fn load(&self) -> Result<(Option<(Revision, String)>, Heartbeats), Stop> {
        let read = self.0.load(None, true, true).await?;
        let heartbeats = read.heartbeats.ok_or_else(|| {
            Stop::failed("the document was loaded without the requested heartbeats")
        })?;
        match read.document {
            Stored::None => Ok((None, heartbeats)),
            Stored::Document { revision, text } => Ok((Some((revision, text)), heartbeats)),
            Stored::Unchanged => Err(Stop::failed(
                "a load without a known revision was answered with unchanged",
            )),
        }
    }

    /// Replaces the document by a text, or removes it. Heartbeats stay.
    ///
    /// Also demands that the store refuses what its conditions forbid. No table can show that of
    /// all of them: a removal, for one, is the last step of a `delete`, which may delete a newer
    /// table as well.
    async fn replace(&self, text: Option<&str>) -> Result<(), Stop> {
        let revision = self.load().await?.0.map(|(revision, _)| revision);
        if revision.is_some() {
            self.refuses_a_second_creation().await?;
        }
        let done = match (text, &revision) {
            (Some(text), revision) => self
                .0
                .store_if_unchanged(revision.as_ref(), text)
                .await?
                .is_some(),
            (None, Some(revision)) => self.0.remove_if_unchanged(revision).await?,
            (None, None) => true,
        };
        if !done {
            return Err(Stop::failed(
                "the document changed although no other client exists",
            ));
        }
        match &revision {
            Some(past) => self.refuses_the_past(past).await,
            None => Ok(()),
        }
    }

    /// `store_if_unchanged` without a revision creates a document, and nothing else.
    async fn refuses_a_second_creation(&self) -> Result<(), Stop> {
        let before = self.load().await?.0;
        let stored = self.0.store_if_unchanged(None, "{}").await?;
        if stored.is_some() || self.load().await?.0 != before {
            return Err(Stop::failed(
                "store_if_unchanged without a revision replaced a document: it must store only if \
                 there is none",
            ));
        }
        Ok(())
    }

    /// With a revision that the document no longer has, nothing is stored or removed: whether
    /// there is another document by now, or none.
    async fn refuses_the_past(&self, past: &Revision) -> Result<(), Stop> {
        let before = self.load().await?.0;
        let stored = self.0.store_if_unchanged(Some(past), "{}").await?;
        if stored.is_some() || self.load().await?.0 != before {
            return Err(Stop::failed(
                "store_if_unchanged stored over a revision that is past: it must store only if the \
                 document still has it",
            ));
        }
        let removed = self.0.remove_if_unchanged(past).await?;
        if removed || self.load().await?.0 != before {
            return Err(Stop::failed(
                "remove_if_unchanged removed, or says so, with a revision that is past: it must \
                 remove only if the document still has it, and return false otherwise",
            ));
        }
        Ok(())
    }

    /// Changes the document, which must exist, as JSON.
    async fn edit(&self, change: impl FnOnce(&mut serde_json::Value) + Send) -> Result<(), Stop> {
        let loaded = self.load().await?.0;
        let (_, text) =
            loaded.ok_or_else(|| Stop::failed("there is no document to stage damage in"))?;
        let mut value: serde_json::Value = serde_json::from_str(&text)?;
        change(&mut value);
        self.replace(Some(&value.to_string())).await
    }
}

impl From<Box<dyn DocumentStore>> for DocumentAccess {
    fn from(document: Box<dyn DocumentStore>) -> Self {
        Self(document)
    }
}

#[async_trait]
impl RawAccess for DocumentAccess {
    type Saved = SavedDocument;

    async fn put_row(&mut self, key: &str, body: &str) -> Result<(), Stop> {
        self.edit(|document| document["rows"][key] = body.into())
            .await
    }

    async fn put_version_row(&mut self, text: &str) -> Result<(), Stop> {
        self.edit(|document| document["version_row"] = text.into())
            .await
    }

    async fn drop_row(&mut self, key: Option<&str>) -> Result<(), Stop> {
        self.edit(|document| match (key, document["rows"].as_object_mut()) {
            (Some(key), Some(rows)) => _ = rows.remove(key),
            (Some(_), None) => {}
            (None, _) => document["version_row"] = serde_json::Value::Null,
        })
        .await
    }

    async fn count(&mut self) -> Result<usize, Stop> {
        let (now, heartbeats) = self.load().await?;
        let cell = usize::from(heartbeats.cluster.is_some());
        Ok(usize::from(now.is_some()) + heartbeats.silos.len() + cell)
    }

    async fn save(&mut self) -> Result<SavedDocument, Stop> {
        let (now, heartbeats) = self.load().await?;
        Ok(SavedDocument {
            text: now.map(|(_, text)| text),
            heartbeats,
        })
    }

    async fn restore(&mut self, saved: &SavedDocument) -> Result<(), Stop> {
        self.replace(saved.text.as_deref()).await?;
        self.0.remove_heartbeats(None).await?;
        for (silo, heartbeat) in &saved.heartbeats.silos {
            self.0.put_heartbeat(silo, heartbeat).await?;
        }
        match &saved.heartbeats.cluster {
            Some(text) => Ok(self.0.put_cluster_cell(text).await?),
            None => Ok(()),
        }
    }
}
